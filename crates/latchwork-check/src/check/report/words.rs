//! Addresses and sites as text, for findings.

use crate::atomic::Ordering;
use crate::check::detect::visible_tasks::TaskRef;
use crate::check::record::board::board;
use crate::check::record::bounded::Text;
use crate::check::record::holder::Holder;
use crate::check::record::layout::{Entry, PLACES};
use crate::check::record::own::Own;
use crate::check::record::process::ProcessId;
use crate::check::record::remote_board;
use crate::check::record::rule::Rule;
use crate::check::record::sites::hash;
use crate::check::report::finding::{
    Confidence, Finding, LockText, PlaceText, Released, TaskText, Use,
};
use crate::hook::{Held, Lock, Mode, RecordedSite};
use crate::sys::{clock, introspect, thread};
use core::fmt::Write;

/// A place in a program, as text.
pub(crate) fn place(process: ProcessId, site: impl Into<RecordedSite>) -> PlaceText {
    let mut text = Shown(PlaceText::EMPTY);
    let _ = match (site.into(), process.visible()) {
        (RecordedSite::UNKNOWN, _) => text.write_str("at an unknown place"),
        // Neither its memory nor its executable can be read.
        (_, None) => text.write_str("at a place of a process of another PID namespace"),
        (site, Some(process)) if !site.is_location() => {
            introspect::write_place(process, site.raw(), &mut text)
        }
        (site, Some(number)) => match text_of(process, site.raw()) {
            Some(known) => text.write_str(&known),
            None => write!(text, "at an unreadable place of process {number}"),
        },
    };
    text.0
}

fn is_own(process: ProcessId) -> bool {
    process.visible() == Some(thread::process_id())
}

/// A text of a process's board.
fn text_of(process: ProcessId, key: u64) -> Option<Text<128>> {
    if is_own(process) {
        return Some(board()?.text_of(key)?.copy());
    }
    remote_board::text(process.visible()?, key)
}

/// A lock, as a task of a process names it; if that is of another PID namespace, as this process does.
pub(crate) fn lock(process: ProcessId, lock: Lock) -> LockText {
    let mut shown = Shown(Text::EMPTY);
    let mut made_at = PlaceText::EMPTY;
    // Processes that share a region have its locks at the same addresses.
    let process = match process.visible() {
        None if crate::region::contains(lock.address()) => ProcessId::here(thread::process_id()),
        _ => process,
    };
    let known = if is_own(process) {
        let entry = board().and_then(|board| board.lock(lock.address()));
        entry.map(Entry::name_and_site)
    } else {
        let visible = process.visible();
        visible.and_then(|process| remote_board::lock(process, lock.address() as u64))
    };
    if let Some((key, site)) = known {
        made_at = place(process, site);
        if let Some(given) = (key != 0).then(|| text_of(process, key)).flatten() {
            let is_named = is_own(process)
                && introspect::write_variable(lock.address(), &given, &mut shown).is_some();
            if !is_named {
                shown = Shown(Text::EMPTY);
                let _ = shown.write_str(&given);
            }
        }
    }
    if shown.0.is_empty() {
        crate::region::write_object_name(lock.address(), &mut shown);
    }
    let Shown(mut name) = shown;
    if name.is_empty() && !made_at.is_empty() {
        let _ = write!(name, "<{made_at}>");
    }
    if name.is_empty() {
        let _ = write!(name, "{:#x}", lock.address());
    }
    LockText {
        name,
        kind: lock.kind,
        address: lock.address() as u64,
        made_at,
    }
}

/// A use of a lock by a task of a process.
pub(crate) fn use_of(
    process: ProcessId,
    lock_used: Lock,
    mode: Mode,
    site: impl Into<RecordedSite>,
    since: u64,
) -> Use {
    let now = clock::monotonic();
    let lasted = now.saturating_sub(since).max(1);
    Use {
        lock: lock(process, lock_used),
        mode,
        at: place(process, site),
        nanoseconds: if since == 0 { 0 } else { lasted },
    }
}

/// As [`use_of`], for an entry of a record.
pub(crate) fn use_of_held(process: ProcessId, held: &Held) -> Use {
    use_of(process, held.lock, held.mode, held.site, held.since)
}

/// The last release of a lock, if a task of this process made it.
pub(crate) fn released(lock: Lock) -> Option<Released> {
    let board = board()?;
    let entry = board.lock(lock.address())?;
    let process = ProcessId::here(thread::process_id());
    // Relaxed: if several releases happen at the same time, any of them, or parts of two, will do.
    let load = |field: &crate::atomic::AtomicU64| RecordedSite::new(field.load(Ordering::Relaxed));
    let note_of = |index: usize| {
        let note = board.note(index, lock.address());
        let generation = note.generation.load(Ordering::Relaxed);
        let is_of_it = note.lock.load(Ordering::Relaxed) == lock.address() as u64
            && generation == entry.generation.load(Ordering::Relaxed);
        is_of_it.then_some(note)
    };
    // If the lock's word is not known in this call, a note is used only if exactly one thread has one.
    let only = || {
        let mut notes = (0..board.places().count()).filter_map(note_of);
        notes.next().filter(|_| notes.next().is_none())
    };
    let note = match Holder::of(lock, entry).place() {
        Some(index) => note_of(index % PLACES),
        None => only(),
    }?;
    let thread = note.thread.load(Ordering::Relaxed);
    let at = match load(&note.released) {
        RecordedSite::UNKNOWN => None,
        // The site lies in lock_api if a guard of that crate was dropped.
        site => Some(place(process, site)).filter(|at| !at.contains("lock_api")),
    };
    lock.kind.has_owner().then(|| Released {
        thread,
        name: thread_name(process, thread),
        by_guard: at.is_none(),
        at: at.unwrap_or_else(|| place(process, load(&note.taken))),
    })
}

/// The calling task.
pub(crate) fn me(own: &Own) -> TaskText {
    let (process, thread) = own.identity();
    TaskText {
        priority: own.record().priority.load(Ordering::Relaxed),
        ..TaskText::new(ProcessId::here(process), thread, clean(&thread::name()))
    }
}

/// A task, from its record.
pub(crate) fn task(who: TaskRef<'_>) -> TaskText {
    let view = who.record.view();
    // Its current name; the record has the name with which it began.
    let mut name = thread_name(who.process, who.thread);
    if name.is_empty() {
        name = clean(view.name());
    }
    TaskText {
        priority: view.priority,
        wants: view.wants.map(|wants| use_of_held(who.process, &wants)),
        ..TaskText::new(who.process, who.thread, name)
    }
}

/// The ID of a process, if `/proc` shows it by that.
fn in_proc(process: ProcessId) -> Option<u32> {
    process.visible().filter(|_| introspect::shows_own_ids())
}

/// What a task is doing at this moment; nothing if that cannot be known.
pub(crate) fn doing(process: ProcessId, thread: u32) -> Text<48> {
    let Some(process) = in_proc(process) else {
        return Text::EMPTY;
    };
    let does = match introspect::thread_state(process, thread) {
        Some('R') => "runs",
        Some('S' | 'D') => "sleeps",
        Some('T' | 't') => "is stopped",
        Some(_) => "is ending",
        None => "has ended",
    };
    Text::new(format_args!("{does}"))
}

/// The name of a thread, also of another process.
pub(crate) fn thread_name(process: ProcessId, thread: u32) -> Text<16> {
    let Some(process) = in_proc(process) else {
        return Text::EMPTY;
    };
    let mut buffer = [0; 16];
    let comm = introspect::read_beginning(
        format_args!("/proc/{process}/task/{thread}/comm"),
        &mut buffer,
    );
    let name = comm.and_then(|comm| comm.utf8_chunks().next());
    clean(name.map_or("", |name| name.valid()).trim_end())
}

/// A name without characters that control a terminal.
pub(crate) fn clean(name: &str) -> Text<16> {
    let mut text = Shown(Text::EMPTY);
    let _ = text.write_str(name);
    text.0
}

/// A text without such characters: names and paths come from the program, or from another process.
struct Shown<const N: usize>(Text<N>);

impl<const N: usize> Write for Shown<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.chars().try_for_each(|character| {
            let is_control = character.is_control();
            self.0.write_char(if is_control { '?' } else { character })
        })
    }
}

/// An ID that is the same for the same rule, places and names, in whatever order the tasks are named.
pub(crate) fn id_of(finding: &Finding) -> u64 {
    let of_use = |of: &Use| {
        // Names that are addresses change from run to run. For a failed call the place matters, not the name.
        let is_no_matter = finding.rule == Rule::NoFailedCall;
        let name = if is_no_matter || of.lock.name.starts_with("0x") {
            0
        } else {
            hash(of.lock.name.as_bytes())
        };
        // The function is left out, since a stripped file does not name it.
        let place = of.at.strip_suffix(')').and_then(|at| at.rsplit_once(" ("));
        let place = place.map_or(&*of.at, |(place, _)| place);
        name.rotate_left(7) ^ hash(place.as_bytes())
    };
    let of_task = |task: &TaskText| {
        let holds = task.holds.as_ref().map_or(1, of_use);
        let wants = task.wants.as_ref().or(task.uses.as_ref());
        let wants = wants.map_or(2, of_use);
        holds.wrapping_mul(31) ^ wants
    };
    let ids = finding.tasks.iter().map(of_task);
    // An order that was only suspected may still be observed.
    let is_suspected =
        finding.rule == Rule::OneOrder && finding.confidence == Confidence::Suspected;
    let confidence = u64::from(is_suspected);
    hash(finding.rule.name().as_bytes()) ^ confidence ^ ids.fold(0_u64, u64::wrapping_add)
}

/// Adds the calling task's stack, without the checker's own frames.
pub(crate) fn add_stack(finding: &mut Finding) {
    let mut frames = [0; 64];
    let count = introspect::stack(&mut frames);
    let process = thread::process_id();
    let mut is_ours = true;
    for frame in frames[..count].iter().filter(|frame| **frame != 0) {
        let mut text = PlaceText::EMPTY;
        // A return address follows the call; the address before it lies within the call.
        let _ = introspect::write_place(process, frame - 1, &mut text);
        // Frames in this project's libraries say nothing about the program.
        is_ours &= text.starts_with("liblatchwork");
        if !is_ours && !finding.stack.push(text) {
            break;
        }
    }
}
