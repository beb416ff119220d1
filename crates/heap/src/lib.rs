//! Gives memory that the allocator keeps free back to the system.
//!
//! It is a crate of its own because there is no safe interface to it, and `mcp-host` forbids unsafe code.

/// Gives back every page on which nothing lies. Only the allocator of glibc has to be told; elsewhere this does nothing.
///
/// It takes about a millisecond for each 10 MiB that go back. Allocations wait meanwhile, so call it seldom.
///
/// # Examples
///
/// ```
/// drop(vec![0; 1 << 20]);
/// mcp_host_heap::trim();
/// ```
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number, touches nothing that is in use, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
