//! Takes views repeatedly, in a thread of its own, so that keys are handled during a slow view.

use crate::live::{Observer, Picture, Symbols};
use crate::process::Process;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// One view of the system.
pub(super) struct View {
    pub(super) picture: Picture,
    /// The processes that have a region open, or whose tasks are in the picture.
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) taken_at: Instant,
    /// How long it took to take.
    pub(super) cost: Duration,
}

/// Takes one view.
pub(super) fn take_view(observer: &mut Observer, symbols: &mut Symbols) -> View {
    let begun = Instant::now();
    let mut picture = observer.view();
    symbols.name_all(&mut picture);
    view_of(picture, begun)
}

/// The view that has a picture.
pub(super) fn view_of(picture: Picture, begun: Instant) -> View {
    let mut processes = BTreeMap::new();
    for region in &picture.regions {
        for opening in &region.openings {
            let pid = opening.process;
            if let Some(process) = Process::read(pid) {
                processes.insert(pid, process);
            }
        }
    }
    View {
        picture,
        processes,
        taken_at: begun,
        cost: begun.elapsed(),
    }
}

/// Takes views and passes them on, as long as this exists.
pub(super) struct Watch {
    views: Receiver<View>,
    /// The thread ends when this is dropped.
    _end: mpsc::Sender<()>,
}

impl Watch {
    pub(super) fn start(interval: Duration) -> io::Result<Self> {
        // At most one view is buffered, so that a slow reader does not get old views.
        let (sender, views) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::channel();
        std::thread::Builder::new()
            .name("view".into())
            .spawn(move || {
                let (mut observer, mut symbols) = (Observer::default(), Symbols::default());
                while sender.send(take_view(&mut observer, &mut symbols)).is_ok()
                    && ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout)
                {
                }
            })?;
        Ok(Self { views, _end: end })
    }

    /// The next view, if there is one.
    pub(super) fn next(&self) -> io::Result<Option<View>> {
        match self.views.try_recv() {
            Ok(view) => Ok(Some(view)),
            Err(TryRecvError::Empty) => Ok(None),
            // The thread has reported the reason.
            Err(TryRecvError::Disconnected) => {
                Err(io::Error::other("the sampling thread has ended"))
            }
        }
    }
}
