//! A changes a link on behalf of the holder of the lock that protects it, and is killed together with the holder. The
//! holder is recovered first: its successor goes on, frees the block that the link leads to, and memory is reused,
//! before A is recovered.

use super::*;

/// Frees the block that link 0 leads to, as `slot`.
fn succeed(world: &World, slot: u16) {
    for block in world.linked_blocks() {
        if world.link(0).load(Relaxed) == block.addr().get() {
            world.retire(slot, block, 0);
            world.loose.borrow_mut().retain(|&loose| loose != block);
        }
    }
}

/// Checks that every known block is live and has one owner, and that all memory is free again, except for the blocks
/// that cannot be decided: the block that A was about to link, and a large one that it unlinked.
fn verify(world: World) {
    let World { region, others, .. } = &world;
    region.heap.check().unwrap();
    let mut all: Vec<_> = others.borrow().clone();
    all.extend(world.linked_blocks());
    for (index, &block) in all.iter().enumerate() {
        assert!(region.is_live(block), "a live block was freed");
        assert!(!all[..index].contains(&block), "a block was given twice");
        assert_intact(&region.heap, block);
    }
    for block in all {
        region.free(owner(C), block);
    }
    region.free(owner(C), world.links.cast());
    for slot in [B, C] {
        region.recover(owner(slot), OnDeath::Free);
    }
    region.heap.check().unwrap();
    let stats = region.heap.stats();
    assert_eq!(stats.private_blocks, 0, "{stats:?}");
    assert!(stats.shared_blocks <= 2, "{stats:?}");
}

#[test]
fn recovery_does_not_free_again_what_a_successor_freed() {
    let mut kills = 0;
    for &(name, _, scenario) in SCENARIOS {
        if !["publish", "retire", "replace"]
            .iter()
            .any(|verb| name.starts_with(verb))
        {
            continue;
        }
        for successor in [B, C] {
            for at in 0.. {
                let context = Context(format!("{name}, {successor} goes on, at {at}"));
                let (world, killed) = killed_world(scenario, at, Meanwhile::Nothing);
                forget_linked(&world);
                // A loose block is private to A, and is freed with it.
                world.loose.borrow_mut().clear();
                if killed {
                    succeed(&world, successor);
                    world.busy();
                }
                world.region.recover(owner(A), OnDeath::Free);
                world.busy();
                verify(world);
                drop(context);
                kills += u32::from(killed);
                if !killed {
                    break;
                }
            }
        }
    }
    assert!(kills > 100, "{kills}");
}
