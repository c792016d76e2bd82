//! Random histories of several tasks against a model of the blocks that must be allocated.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::atomic::AtomicUsize;

const TASKS: usize = 4;
const LINKS: usize = 8;
const SPANS: u32 = 48;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        task: usize,
        size: usize,
        align: u32,
    },
    /// Frees the block with index `which` among those that no link holds, whichever task allocated it.
    Free {
        task: usize,
        which: usize,
    },
    Keep {
        which: usize,
    },
    /// Publishes, or replaces if the link is in use.
    Publish {
        task: usize,
        which: usize,
        link: usize,
    },
    Retire {
        task: usize,
        link: usize,
    },
    Trim {
        task: usize,
    },
    Die {
        task: usize,
        policy: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let task = 0..TASKS;
    let size = prop_oneof![
        8 => 0..300usize,
        4 => 300..5000usize,
        2 => 5000..40_000usize,
        1 => 40_000..400_000usize,
    ];
    let align = prop_oneof![9 => Just(0), 1 => 0..18u32];
    prop_oneof![
        12 => (task.clone(), size, align).prop_map(|(task, size, align)| Op::Alloc { task, size, align }),
        8 => (task.clone(), any::<usize>()).prop_map(|(task, which)| Op::Free { task, which }),
        1 => any::<usize>().prop_map(|which| Op::Keep { which }),
        3 => (task.clone(), any::<usize>(), 0..LINKS)
            .prop_map(|(task, which, link)| Op::Publish { task, which, link }),
        2 => (task.clone(), 0..LINKS).prop_map(|(task, link)| Op::Retire { task, link }),
        1 => task.clone().prop_map(|task| Op::Trim { task }),
        1 => (task, 0..3usize).prop_map(|(task, policy)| Op::Die { task, policy }),
    ]
}

/// The model of an allocated block.
#[derive(Clone, Copy)]
struct Block {
    bytes: usize,
    /// The task to which it is private.
    private: Option<usize>,
    link: Option<usize>,
}

struct Model {
    region: Region,
    owners: [Owner; TASKS],
    blocks: BTreeMap<usize, Block>,
    links: NonNull<[AtomicUsize; LINKS]>,
}

impl Model {
    fn new() -> Self {
        let region = Region::new(SPANS);
        let owners = [3, 63, 64, 127].map(owner);
        let links = region.alloc(owner(9), size_of::<[AtomicUsize; LINKS]>());
        // SAFETY: a fresh block of that size, which is not freed.
        unsafe {
            links.write_bytes(0, size_of::<[AtomicUsize; LINKS]>());
            region.heap.keep(links);
        }
        Self {
            region,
            owners,
            blocks: BTreeMap::new(),
            links: links.cast(),
        }
    }

    fn link(&self, link: usize) -> &AtomicUsize {
        // SAFETY: the block of links lives as long as the region.
        unsafe { &self.links.as_ref()[link] }
    }

    fn pick(&self, which: usize) -> Option<NonNull<u8>> {
        let free: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, b)| b.link.is_none())
            .collect();
        let &(&address, _) = free.get(which.checked_rem(free.len())?)?;
        NonNull::new(address as *mut u8)
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Alloc { task, size, align } => self.alloc(task, size, 1 << align),
            Op::Free { task, which } => {
                if let Some(block) = self.pick(which) {
                    assert_intact(&self.region.heap, block);
                    self.region.free(self.owners[task], block);
                    self.blocks.remove(&block.addr().get());
                }
            }
            Op::Keep { which } => {
                if let Some(block) = self.pick(which) {
                    // SAFETY: the block is not freed meanwhile.
                    unsafe { self.region.heap.keep(block) };
                    self.blocks.get_mut(&block.addr().get()).unwrap().private = None;
                }
            }
            Op::Publish { task, which, link } => self.publish(task, which, link),
            Op::Retire { task, link } => {
                let old = self.link(link).load(Relaxed);
                if let Some(block) = NonNull::new(old as *mut u8) {
                    let task = self.region.task(self.owners[task]);
                    // SAFETY: only one task at a time changes links.
                    unsafe { self.region.heap.retire(&task, block, self.link(link), 0) };
                    self.blocks.remove(&old);
                }
            }
            Op::Trim { task } => {
                let owner = self.owners[task];
                self.region.heap.trim(&self.region.task(owner));
                self.region.assert_backed();
            }
            Op::Die { task, policy } => self.die(task, policy),
        }
    }

    fn alloc(&mut self, task: usize, size: usize, align: usize) {
        let layout = Layout::from_size_align(size, align).unwrap();
        let heap = &self.region.heap;
        let Ok(block) = heap.alloc(&self.region.task(self.owners[task]), layout) else {
            let large = size.max(align) > SPAN_BYTES;
            assert!(large || heap.committed() == SPANS, "gave up too early");
            return;
        };
        let (address, bytes) = (block.addr().get(), heap.usable_size(block));
        assert!(address.is_multiple_of(align) && bytes >= size);
        let below = self.blocks.range(..address).next_back();
        assert!(below.is_none_or(|(start, b)| start + b.bytes <= address));
        let above = self.blocks.range(address..).next();
        assert!(above.is_none_or(|(&start, _)| address + bytes <= start));
        fill(heap, block);
        self.blocks.insert(
            address,
            Block {
                bytes,
                private: Some(task),
                link: None,
            },
        );
    }

    fn publish(&mut self, task: usize, which: usize, link: usize) {
        let Some(new) = self.pick(which) else { return };
        let task = self.region.task(self.owners[task]);
        let address = new.addr().get();
        let old = self.link(link).load(Relaxed);
        let heap = &self.region.heap;
        // SAFETY: only one task at a time changes links.
        unsafe {
            let old = NonNull::new(old as *mut u8);
            heap.replace(&task, old, Some(new), self.link(link), address);
        }
        self.blocks.remove(&old);
        let block = self.blocks.get_mut(&address).unwrap();
        block.link = Some(link);
        block.private = None;
    }

    fn die(&mut self, task: usize, policy: usize) {
        let adopter = (task + 1) % TASKS;
        let policy = [
            OnDeath::Free,
            OnDeath::Keep,
            OnDeath::Adopt(self.owners[adopter]),
        ][policy];
        self.region.recover(self.owners[task], policy);
        let next = self.owners[task].generation() + 1;
        let slot = self.owners[task].slot();
        self.owners[task] = Owner::new(slot, NonZero::new(next).unwrap());
        if policy == OnDeath::Free {
            self.blocks.retain(|_, b| b.private != Some(task));
        }
        for block in self.blocks.values_mut() {
            if block.private == Some(task) {
                block.private = matches!(policy, OnDeath::Adopt(_)).then_some(adopter);
            }
        }
    }

    fn verify(&self) {
        self.region.heap.check().unwrap();
        let stats = self.region.heap.stats();
        let private = self.blocks.values().filter(|b| b.private.is_some()).count();
        let bytes: usize = self.blocks.values().map(|b| b.bytes).sum();
        let links = self.region.heap.usable_size(self.links.cast());
        assert_eq!(stats.private_blocks, private);
        assert_eq!(stats.shared_blocks, self.blocks.len() - private + 1);
        assert_eq!(stats.allocated_bytes, bytes + links);
        let spans = stats.free_spans + stats.small_spans + stats.large_spans;
        assert_eq!(spans as u32, self.region.heap.committed());
    }

    fn finish(mut self) {
        for (address, block) in std::mem::take(&mut self.blocks) {
            let at = NonNull::new(address as *mut u8).unwrap();
            assert_intact(&self.region.heap, at);
            let task = self.owners[block.bytes % TASKS];
            self.region.free(task, at);
        }
        self.region.free(self.owners[0], self.links.cast());
        self.region.recover(owner(9), OnDeath::Free);
        self.region.assert_empty(&self.owners);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn heap_agrees_with_its_model(ops in prop::collection::vec(op(), 1..600)) {
        let mut model = Model::new();
        for (index, op) in ops.into_iter().enumerate() {
            model.step(op);
            if index % 16 == 0 {
                model.verify();
            }
        }
        model.verify();
        model.finish();
    }
}
