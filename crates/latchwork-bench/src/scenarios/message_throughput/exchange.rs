//! Which tasks exchange which messages: the cases of the scenario.

use std::io;

use crate::machine;
use crate::peers::pin_to;
use crate::result::{Kind, Mode, Params, Placement, Variant, Warning};

/// The sizes if there are several senders or receivers.
const SIZES_AMONG_MANY: [u64; 2] = [64, 1024];

/// One sender and one receiver.
pub(super) fn between_two(kind: Kind, sizes: &[u64], warnings: &mut Vec<Warning>) -> Vec<Exchange> {
    let mut ways = vec![(Mode::RoundTrip, Placement::SameCpu)];
    if machine::cpus().len() > 1 {
        ways.push((Mode::Stream, Placement::DifferentCpu));
        ways.push((Mode::RoundTrip, Placement::DifferentCpu));
    } else {
        ways.push((Mode::Stream, Placement::SameCpu));
        let text = "1 CPU: tasks on different CPUs are left out".into();
        let warning = Warning::FewCpus { text };
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let plain = sizes.iter().map(|&size| (size, None));
    let largest = sizes.last().map(|&size| (size, Some(Variant::Computed)));
    let mut exchanges = Vec::new();
    for (mode, placement) in ways {
        let fits = |(_, case): &(u64, Option<Variant>)| case.is_none() || mode == Mode::Stream;
        let sized = plain.clone().chain(largest).filter(fits);
        exchanges.extend(sized.map(|(size, case)| Exchange {
            kind,
            mode,
            placement,
            size,
            case,
            senders: 1,
            receivers: 1,
        }));
    }
    exchanges
}

/// Several senders, several receivers, or both.
pub(super) fn among_many(kind: Kind, tasks: u32) -> impl Iterator<Item = Exchange> {
    let shapes = [
        (Variant::ManyToOne, tasks - 1),
        (Variant::OneToMany, 1),
        (Variant::ManyToMany, tasks / 2),
    ];
    shapes.into_iter().flat_map(move |(case, senders)| {
        SIZES_AMONG_MANY.into_iter().map(move |size| Exchange {
            kind,
            mode: Mode::Stream,
            placement: Placement::Free,
            size,
            case: Some(case),
            senders,
            receivers: tasks - senders,
        })
    })
}

/// The tasks and messages of a case.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub(super) kind: Kind,
    pub(super) mode: Mode,
    pub(super) placement: Placement,
    pub(super) size: u64,
    pub(super) case: Option<Variant>,
    pub(super) senders: u32,
    pub(super) receivers: u32,
}

impl Exchange {
    pub(super) fn params(&self) -> Params {
        Params {
            kind: Some(self.kind),
            mode: Some(self.mode),
            placement: Some(self.placement),
            size: Some(self.size),
            tasks: Some(self.tasks()).filter(|tasks| *tasks > 2),
            case: self.case,
            ..Params::default()
        }
    }

    pub(super) fn tasks(&self) -> u32 {
        self.senders + self.receivers
    }

    /// Whether each byte is written and read.
    pub(super) fn is_computed(&self) -> bool {
        self.case == Some(Variant::Computed)
    }

    /// How many messages go from each sender to each receiver, on average, so that there are at least `messages` in
    /// total.
    pub(super) fn share(&self, messages: u64) -> u64 {
        messages.div_ceil(u64::from(self.senders * self.receivers))
    }

    /// Places the task with this number on its CPU.
    pub(super) fn place(&self, number: u32) -> io::Result<()> {
        let cpus = machine::cpus();
        match self.placement {
            Placement::SameCpu => pin_to(cpus[0]),
            Placement::DifferentCpu => pin_to(cpus[number as usize]),
            Placement::Free => Ok(()),
        }
    }
}
