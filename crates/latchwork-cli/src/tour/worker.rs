//! A worker of the tour: a coproc that takes pieces from the queue until it gets a stop message.

use super::index::{self, Board, Found, Guarded, Piece};
use super::words;
use latchwork::queue::Queue;
use latchwork::region::Region;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

pub(super) const QUEUE: &str = "pieces";
pub(super) const INDEX: &str = "index";
pub(super) const BOARD: &str = "board";

/// A message: the place of a piece of text. An empty one means stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) number: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) path: &'a Path,
}

impl<'a> Task<'a> {
    pub(super) fn encode(self, message: &mut Vec<u8>) {
        message.clear();
        message.extend(self.number.to_ne_bytes());
        message.extend(self.offset.to_ne_bytes());
        message.extend(self.length.to_ne_bytes());
        message.extend(self.path.as_os_str().as_bytes());
    }

    fn decode(message: &'a [u8]) -> Option<Self> {
        let (number, rest) = message.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (length, path) = rest.split_first_chunk()?;
        Some(Self {
            number: u32::from_ne_bytes(*number),
            offset: u64::from_ne_bytes(*offset),
            length: u64::from_ne_bytes(*length),
            path: Path::new(OsStr::from_bytes(path)),
        })
    }
}

/// The function of worker `number`, counted from 0. Its exit code is 0, or 1 after printing the reason on standard
/// error.
pub(super) fn run(region: &Region, number: u32) -> i32 {
    match work(region, number) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("worker {}: {error}", number + 1);
            1
        }
    }
}

fn work(region: &Region, number: u32) -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue::open(region, QUEUE)?;
    let index = region.find::<Guarded>(INDEX)?;
    let board = region.find::<Board>(BOARD)?;
    let mut text = Vec::new();
    loop {
        let message = queue.receive_held()?;
        let Some(task) = Task::decode(&message) else {
            message.done();
            return Ok(());
        };
        if message.deliveries() > 1 {
            board.redelivered.fetch_add(1, Relaxed);
        }
        let mut work = || -> Result<bool, Box<dyn std::error::Error>> {
            words::read_piece(task.path, task.offset, task.length, &mut text)?;
            let piece = Piece {
                number: task.number,
                bytes: task.length,
                counts: &words::counts(&text),
            };
            Ok(add(index, &board, number, piece)?)
        };
        let added = match work() {
            Ok(added) => added,
            Err(error) => {
                // Another worker may succeed.
                message.give_back();
                return Err(error);
            }
        };
        if !added {
            board.done_already.fetch_add(1, Relaxed);
        }
        board.pieces[number as usize].fetch_add(1, Relaxed);
        message.done();
    }
}

fn add(
    index: Pin<&Guarded>,
    board: &Board,
    number: u32,
    piece: Piece<'_>,
) -> Result<bool, index::IndexError> {
    let (mut held, found) = index::lock(index)?;
    if let Found::OwnerDied { rolled_back } = found {
        board.rolled_back.store(rolled_back.into(), Relaxed);
        board.recovered_by.store(number + 1, SeqCst);
    }
    index::add(&mut held, piece, || {
        stop_if_victim(board, number, piece.number)
    })
}

/// The victim waits here to be killed, with the lock held and the index half changed.
fn stop_if_victim(board: &Board, number: u32, piece: u32) {
    let is_victim = board.trap.load(Relaxed) == piece
        && board
            .victim
            .compare_exchange(0, number + 1, SeqCst, SeqCst)
            .is_ok();
    if is_victim {
        loop {
            std::thread::park();
        }
    }
}
