//! Mutexes of a region whose waiters are served by recorded priority.

use super::actor::{Actor, Look};
use super::common::{Named, json, run, stdout};
use super::seen;

#[test]
fn priority_mutexes_are_listed_with_owner_and_waiters() {
    let named = Named::new("plans");
    let actor = Actor::role("region", &named.0);
    let of = |object: &str| format!("{}:{object}", named.0);
    let look = seen(&actor, |look| look.waiters(&of("plan")).len() == 1);
    let plan = look.lock(&of("plan"));
    assert_eq!(plan["type"], "priority mutex", "{plan:#}");
    assert_eq!(look.owner(&plan).as_deref(), Some("first"), "{plan:#}");
    assert_eq!(look.waiters(&of("plan")), ["planner"]);
    // A free one is listed, too.
    let region = Look(json(&["locks", "--all", "--region", &named.0]));
    let spare = region.lock(&of("spare"));
    assert_eq!(spare["type"], "priority mutex", "{spare:#}");
    assert_eq!(spare["state"], "free", "{spare:#}");
    let ps = stdout(&run(&["ps", &named.0]));
    assert!(ps.contains("plan (priority mutex)"), "{ps}");
}
