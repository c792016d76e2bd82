//! Misuse that the object itself, or the caller, has detected; and memory that is used as a lock and is none.

use super::lookup::join_region;
use crate::check::detect::visible_tasks::VisibleTasks;
use crate::check::record::own::Own;
use crate::check::record::rule::Rule;
use crate::check::report::findings;
use crate::hook::{Lock, Misuse, Site};
use core::fmt;

pub(crate) fn not_a_lock(own: &Own, lock: Lock, rule: Rule, why: &str, site: Site) {
    own.know_site(site);
    let other = VisibleTasks::holder(own, lock);
    let rule = if other.is_some() || own.find(lock.address()).is_some() {
        Rule::NotRemadeWhileHeld
    } else {
        rule
    };
    findings::misuse(own, rule, lock, site, other, format_args!("{why}"));
}

pub(crate) fn misused(own: &Own, lock: Lock, misuse: Misuse, site: Site) {
    own.know_site(site);
    join_region(lock);
    let rule = match misuse {
        Misuse::NotOwner { owned: true } => Rule::OwnerUnlocks,
        Misuse::NotOwner { owned: false } => Rule::NoDoubleUnlock,
        Misuse::AfterEnd => Rule::InitialisedByInterface,
        Misuse::DeleteOwned | Misuse::DeleteAwaited { .. } => Rule::NoDeleteInUse,
        Misuse::AboveCeiling { .. } => Rule::WithinCeiling,
    };
    let is_owned = matches!(
        misuse,
        Misuse::NotOwner { owned: true } | Misuse::DeleteOwned
    );
    let other = is_owned.then(|| VisibleTasks::holder(own, lock)).flatten();
    let say = |what: fmt::Arguments<'_>| findings::misuse(own, rule, lock, site, other, what);
    match misuse {
        Misuse::NotOwner { owned: true } => {
            say(format_args!("releases an object that another task owns:"));
        }
        Misuse::NotOwner { owned: false } => {
            say(format_args!("releases an object that no task owns:"));
        }
        Misuse::AfterEnd => say(format_args!("uses a destroyed")),
        Misuse::DeleteOwned => say(format_args!("deletes an owned")),
        Misuse::DeleteAwaited { waiting } => {
            say(format_args!(
                "deletes, while {waiting} task(s) wait for it,"
            ));
        }
        Misuse::AboveCeiling { own, ceiling } => {
            say(format_args!(
                "has priority {own}, above the ceiling {ceiling}, and uses"
            ));
        }
    }
}
