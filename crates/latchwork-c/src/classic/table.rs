//! The process's table of classic objects: `lw_classic_configure` makes it, or the first directive.
//!
//! Cancellation is disabled meanwhile.
#![allow(unsafe_code)]

use crate::bytes;
use crate::failure::{self, Invalid, Number};
use crate::region::text;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use core::time::Duration;
use latchwork::classic::{self, Classic, ClassicOptions, Name, Status};
use latchwork::foreign::Undisturbed;
use latchwork::region::{AttachError, CreateError, Region, RegionOptions};
use libc::EBUSY;

const MEMORY: u64 = 16 << 20;

/// `struct lw_classic_options`.
#[repr(C)]
struct Options {
    region: *const c_char,
    memory: usize,
    semaphores: u16,
    message_queues: u16,
    microseconds_per_tick: u32,
    flags: u32,
    schedulers: *const Scheduler,
    scheduler_count: usize,
}

/// `struct lw_classic_scheduler`.
#[repr(C)]
struct Scheduler {
    name: Name,
    cpusetsize: usize,
    cpuset: *const c_void,
}

impl Options {
    /// # Safety
    /// The program's options are as `classic.h` says.
    unsafe fn declare_schedulers(&self, mut table: ClassicOptions) -> Option<ClassicOptions> {
        if self.schedulers.is_null() {
            return (self.scheduler_count == 0).then_some(table);
        }
        for index in 0..self.scheduler_count {
            // SAFETY: the array has as many elements as the caller says.
            let Scheduler {
                name,
                cpusetsize,
                cpuset,
            } = unsafe { self.schedulers.add(index).read() };
            // SAFETY: the set has as many bytes as the caller says.
            let set = unsafe { bytes(cpuset, cpusetsize) };
            let processors = classic::processors_in(set.unwrap_or_default())?;
            table = table.scheduler(name, &processors);
        }
        Some(table)
    }
}

/// `LW_CLASSIC_UNSCHEDULED`
const UNSCHEDULED: u32 = 1;

/// The table, and the region in which it lies.
pub(super) struct Made {
    pub(super) table: Classic<'static>,
    pub(super) region: Place,
    /// Whether tasks' priorities are set in the kernel.
    pub(super) is_scheduled: bool,
}

/// The region of a table. It is mapped until the process ends, since ids may be used until then; unless no table was made
/// in it.
pub(super) struct Place {
    region: NonNull<Region>,
    /// This process has created it: under this name, if it has one.
    created: Option<Option<String>>,
}

impl Place {
    fn new(options: &RegionOptions, name: Option<&str>) -> Result<Self, AttachError> {
        let (region, created) = match name {
            None => (options.create_anonymous()?, Some(None)),
            Some(name) => loop {
                match options.attach(name) {
                    Err(AttachError::NotFound) => {}
                    region => break (region?, None),
                }
                match options.create_named(name) {
                    Err(CreateError::Exists) => {}
                    region => break (region?, Some(Some(name.to_owned()))),
                }
            },
        };
        Ok(Self {
            region: NonNull::from(Box::leak(Box::new(region))),
            created,
        })
    }

    pub(super) fn region(&self) -> &'static Region {
        // SAFETY: it is dropped with this value only: then no table is in it, and no reference is left.
        unsafe { self.region.as_ref() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: `new` has made the box, and nobody uses the region.
        let region = unsafe { Box::from_raw(self.region.as_ptr()) };
        if let Some(name) = &self.created {
            if let Some(name) = name {
                let _ = RegionOptions::unlink(name);
            }
            // A thread that holds locks in it stays its task.
            let _ = region.detach();
        }
    }
}

/// Of the process. No lock protects it: a thread that held one would hold it for ever in the child of another thread's fork.
static CLASSIC: AtomicPtr<Made> = AtomicPtr::new(ptr::null_mut());

pub(super) fn existing() -> Option<&'static Made> {
    // SAFETY: null, or a value that is never dropped. Acquire: pairs with the exchange in `publish`.
    unsafe { CLASSIC.load(Ordering::Acquire).as_ref() }
}

/// Makes the process's table, unless another thread has made one meanwhile; then that is returned as an error.
fn publish(made: Made) -> Result<&'static Made, &'static Made> {
    let made = Box::into_raw(Box::new(made));
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    match CLASSIC.compare_exchange(ptr::null_mut(), made, success, failure) {
        // SAFETY: as for `existing`.
        Ok(_) => Ok(unsafe { &*made }),
        Err(other) => {
            // SAFETY: made above; nobody else has seen it.
            let mut made = unsafe { Box::from_raw(made) };
            // The other thread may have attached the region by its name.
            made.region.created = made.region.created.take().map(|_| None);
            drop(made);
            // SAFETY: as for `existing`.
            Err(unsafe { &*other })
        }
    }
}

fn make(options: Option<&Options>) -> Result<Made, Number> {
    if std::env::var_os("LATCHWORK_CHECK").is_some() {
        latchwork::check::begin();
    }
    let mut table = ClassicOptions::new();
    let mut region = RegionOptions::new().max_bytes(MEMORY).label("classic");
    let mut name = None;
    if let Some(options) = options {
        if options.flags & !UNSCHEDULED != 0 {
            return Err(Invalid("unknown flags").into());
        }
        if options.memory != 0 {
            region = region.max_bytes(options.memory as u64);
        }
        if options.semaphores != 0 {
            table = table.semaphores(options.semaphores);
        }
        if options.message_queues != 0 {
            table = table.message_queues(options.message_queues);
        }
        if options.microseconds_per_tick != 0 {
            table = table.tick(Duration::from_micros(options.microseconds_per_tick.into()));
        }
        // SAFETY: by the caller's contract.
        table = unsafe { options.declare_schedulers(table) }
            .ok_or(Invalid("a scheduler's set of processors"))?;
        // SAFETY: the caller passes null, or a string that ends in NUL.
        name = unsafe { text(options.region) }.map_err(|_| Invalid("the region's name"))?;
    }
    let region = Place::new(&region, name)?;
    Ok(Made {
        table: Classic::create(region.region(), &table)?,
        region,
        is_scheduled: options.is_none_or(|options| options.flags & UNSCHEDULED == 0),
    })
}

/// The table; the first directive makes it.
#[inline]
pub(super) fn made() -> Result<&'static Made, Status> {
    existing().map_or_else(made_now, Ok)
}

#[cold]
fn made_now() -> Result<&'static Made, Status> {
    let _undisturbed = Undisturbed::begin();
    let made = make(None).map_err(|_| Status::InternalError)?;
    Ok(publish(made).unwrap_or_else(|other| other))
}

#[unsafe(no_mangle)]
extern "C" fn lw_classic_configure(options: Option<&Options>) -> c_int {
    let busy = || Number(failure::failed(EBUSY, "a directive was used before"));
    failure::call(|| {
        let options = failure::given(options)?;
        if existing().is_some() {
            return Err(busy());
        }
        publish(make(Some(options))?).map_err(|_| busy())?;
        Ok(())
    })
}
