//! Tells the allocator of glibc to give memory back to the system.
//!
//! It is a crate of its own because there is no safe interface to it, and `mcp-host` forbids unsafe code. Other allocators
//! need not be told: there, nothing here does anything.

/// Gives back every page on which nothing lies.
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

/// How many bytes of the heap nobody uses, modulo 4 GiB; `None` where the allocator does not say.
///
/// Pages that were given back count as well, so only how it changes tells what there is to give back.
///
/// # Examples
///
/// ```
/// let before = mcp_host_heap::unused();
/// mcp_host_heap::trim();
/// # let _ = before;
/// ```
pub fn unused() -> Option<u32> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // The one with wider numbers, `mallinfo2`, is lacking before glibc 2.33.
        // SAFETY: it takes nothing and returns numbers, under the allocator's own locks.
        let info = unsafe { libc::mallinfo() };
        Some(info.fordblks.cast_unsigned())
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// From so many bytes on an allocation has a mapping of its own from now on, which goes back as soon as it is freed; and
/// twice as much that is free at the end of the heap goes back, too.
///
/// A mapping costs two calls of the system and a fault for each page; the heap keeps holes. By itself glibc begins with
/// 128 KiB and raises that up to 32 MiB as such allocations are freed; after the first call of this it does so no more.
///
/// # Examples
///
/// ```
/// mcp_host_heap::map_from(64 * 1024);
/// drop(vec![0; 1 << 20]);
/// ```
pub fn map_from(bytes: u32) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        for (setting, value) in [(libc::M_MMAP_THRESHOLD, bytes), (libc::M_TRIM_THRESHOLD, bytes.saturating_mul(2))] {
            // SAFETY: it sets a number of the allocator, under the allocator's own lock.
            unsafe {
                libc::mallopt(setting, value);
            }
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = bytes;
}
