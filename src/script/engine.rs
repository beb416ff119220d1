//! Runs a script by QuickJS: no modules, no timers, no files, no network; only calls of tools.
//!
//! In: a script, and the answers to its calls. Out: its calls, its log, its result or error. A call is sent at once,
//! and the script continues until it can only wait. **Invariant:** every script ends, whatever it does: by itself, by a
//! limit, or because it waits for something that can never happen.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Function, Object, Persistent, Promise, Runtime, Value};
use rustix::time::{ClockId, clock_gettime};
use serde_json::value::RawValue;

use super::{Fault, Limit, Reply, Said, Start};

/// What surrounds a script: the receiver of its messages, and the source of answers.
pub(super) trait Outside {
    /// Sends a message. Returns false if the host is gone.
    fn say(&mut self, said: &Said) -> bool;

    /// Waits for the next answer; `None` if there will be none.
    fn reply(&mut self) -> Option<Reply>;
}

const PRELUDE: &str = include_str!("prelude.js");
/// How deep a script may recurse, in bytes of stack.
const STACK: usize = 1 << 20;

/// Runs a script to its end.
pub(super) fn run(start: &Start, outside: impl Outside + 'static) {
    let outside = Rc::new(RefCell::new(outside));
    let Some(last) = evaluate(start, &outside) else { return };
    outside.borrow_mut().say(&last);
}

/// Runs the script, and returns its last message; `None` if the host is gone.
fn evaluate<O: Outside + 'static>(start: &Start, outside: &Rc<RefCell<O>>) -> Option<Said> {
    let over = Rc::new(Cell::new(None));
    let made = Runtime::new().and_then(|runtime| Context::full(&runtime).map(|context| (runtime, context)));
    let Ok((runtime, context)) = made else { return Some(limited(Limit::Memory)) };
    runtime.set_memory_limit(start.memory);
    runtime.set_max_stack_size(STACK);
    let (flag, cpu) = (over.clone(), start.cpu);
    runtime.set_interrupt_handler(Some(Box::new(move || {
        if computed() > cpu {
            flag.set(Some(Limit::Cpu));
        }
        flag.get().is_some()
    })));
    let world = World { outside, over, open: Rc::default() };
    let script = match context.with(|ctx| world.begin(&ctx, start)) {
        Ok(script) => script,
        Err(last) => return Some(*last),
    };
    loop {
        loop {
            match runtime.execute_pending_job() {
                Ok(true) if world.over.get().is_none() => {}
                Ok(false) if world.over.get().is_none() => break,
                // An exception of the script becomes a rejected promise. A job itself fails only for lack of memory or
                // time.
                Ok(_) | Err(_) => return Some(limited(world.over.get().unwrap_or(Limit::Memory))),
            }
        }
        if let Some(last) = context.with(|ctx| world.look(&ctx, &script, start)) {
            return Some(last);
        }
        // The borrow must not last while JavaScript runs.
        let reply = world.outside.borrow_mut().reply();
        let reply = reply?;
        if !context.with(|ctx| world.settle(&ctx, &script, &reply)) {
            return Some(limited(world.over.get().unwrap_or(Limit::Memory)));
        }
    }
}

/// Returns the processor time that this process has used.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn limited(limit: Limit) -> Said {
    Said::Failed(Fault { limit: Some(limit), ..Fault::default() })
}

/// A running script.
struct World<'a, O> {
    outside: &'a Rc<RefCell<O>>,
    /// The limit that ended the script, if one did.
    over: Rc<Cell<Option<Limit>>>,
    /// The number of its calls without an answer.
    open: Rc<Cell<usize>>,
}

/// A script that has begun, and what its prelude created for the engine.
struct Script {
    promise: Persistent<Promise<'static>>,
    settle: Persistent<Function<'static>>,
    encode: Persistent<Function<'static>>,
    fault: Persistent<Function<'static>>,
}

impl<O: Outside + 'static> World<'_, O> {
    /// Begins the script.
    ///
    /// # Errors
    /// Fails if the script cannot begin. The error is its last message.
    fn begin(&self, ctx: &Ctx<'_>, start: &Start) -> Result<Script, Box<Said>> {
        let prepared = self.prepare(ctx, start).and_then(|tools| {
            let of = |name: &str| tools.get::<_, Function<'_>>(name);
            Ok((of("settle")?, of("encode")?, of("fault")?))
        });
        let Ok((settle, encode, fault)) = prepared else {
            return Err(Box::new(limited(self.over.get().unwrap_or(Limit::Memory))));
        };
        let mut options = EvalOptions::default();
        (options.strict, options.filename) = (false, Some("script".to_owned()));
        // The script starts on the first line of the body, so that line numbers in errors are those of the script.
        let body = format!("(async () => {{{}\n}})()", start.script);
        let promise: Promise<'_> = match ctx.eval_with_options(body, options) {
            Ok(promise) => promise,
            Err(_) => return Err(Box::new(Said::Failed(self.fault(ctx, &fault)))),
        };
        Ok(Script {
            promise: Persistent::save(ctx, promise),
            settle: Persistent::save(ctx, settle),
            encode: Persistent::save(ctx, encode),
            fault: Persistent::save(ctx, fault),
        })
    }

    /// Checks whether the script has ended. If so, returns its last message.
    fn look(&self, ctx: &Ctx<'_>, script: &Script, start: &Start) -> Option<Said> {
        let promise = script.promise.clone().restore(ctx).ok()?;
        let fault = script.fault.clone().restore(ctx).ok()?;
        let is_last = self.open.get() == 0;
        match promise.state() {
            PromiseState::Rejected => {
                let _ = promise.result::<Value<'_>>();
                Some(Said::Failed(self.fault(ctx, &fault)))
            }
            PromiseState::Resolved if is_last => {
                let encode = script.encode.clone().restore(ctx).ok()?;
                let value = promise.result::<Value<'_>>()?.ok()?;
                let text = encode.call::<_, String>((value,));
                Some(match text.ok().and_then(|text| RawValue::from_string(text).ok()) {
                    Some(value) if value.get().len() > start.output => Said::Long(value.get().len()),
                    Some(value) => Said::Returned(value),
                    None => Said::Failed(self.fault(ctx, &fault)),
                })
            }
            PromiseState::Pending if is_last => {
                let text = "the script waits for a promise that nothing can settle".to_owned();
                Some(Said::Failed(Fault { name: "Error".to_owned(), text, ..Fault::default() }))
            }
            PromiseState::Resolved | PromiseState::Pending => None,
        }
    }

    /// Passes the answer to a call to the script. Returns false if there is not enough memory for that.
    fn settle(&self, ctx: &Ctx<'_>, script: &Script, reply: &Reply) -> bool {
        self.open.set(self.open.get().saturating_sub(1));
        let settle = script.settle.clone().restore(ctx);
        settle.and_then(|settle| settle.call::<_, ()>((reply.id, reply.ok, reply.value.get()))).is_ok()
    }

    /// Creates the global environment of the script. Returns what the prelude returns.
    fn prepare<'js>(&self, ctx: &Ctx<'js>, start: &Start) -> rquickjs::Result<Object<'js>> {
        let (outside, open, over) = (self.outside.clone(), self.open.clone(), self.over.clone());
        let send = Function::new(ctx.clone(), move |id: u32, name: String, arguments: String| {
            let name = serde_json::from_str(&name).unwrap_or_default();
            let Ok(arguments) = RawValue::from_string(arguments) else { return };
            open.set(open.get() + 1);
            if !outside.borrow_mut().say(&Said::Call { id, name, arguments }) {
                // The host is gone, so the script need not continue.
                over.set(Some(Limit::Cpu));
            }
        })?;
        let outside = self.outside.clone();
        let print = Function::new(ctx.clone(), move |line: String| {
            outside.borrow_mut().say(&Said::Log(serde_json::from_str(&line).unwrap_or_default()));
        })?;
        let mut options = EvalOptions::default();
        options.filename = Some("mcp-host".to_owned());
        let prelude: Function<'js> = ctx.eval_with_options(PRELUDE, options)?;
        prelude.call((send, print, start.input.get(), start.arguments, start.output))
    }

    /// Describes the pending exception, with which the script failed.
    fn fault<'js>(&self, ctx: &Ctx<'js>, describe: &Function<'js>) -> Fault {
        let error = ctx.catch();
        let said = match self.over.get() {
            None => describe.call::<_, String>((error,)).ok(),
            Some(_) => None,
        };
        // Without memory or time, the exception cannot be described.
        let unsaid = || Fault { limit: self.over.get().or(Some(Limit::Memory)), ..Fault::default() };
        said.and_then(|said| serde_json::from_str(&said).ok()).unwrap_or_else(unsaid)
    }
}
