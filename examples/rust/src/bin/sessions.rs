//! A server with a region for each session: a struct that holds the region and its objects, made and dropped as
//! often as one likes.
#![forbid(unsafe_code)]

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{HashMap, Object, RegionOptions, String as SharedString};
use std::error::Error;
use std::sync::{Arc, mpsc};

type AnyError = Box<dyn Error + Send + Sync>;
type Entries = Mutex<HashMap<SharedString, u64>, Robust>;

/// The objects keep the region mapped. To use other names of it, `entries.region()` leads there.
struct Session {
    entries: Object<Entries>,
    requests: Object<Mutex<u64, Robust>>,
}

impl Session {
    fn new(number: u64) -> Result<Self, AnyError> {
        let region = RegionOptions::new()
            .max_bytes(4 << 20)
            .max_tasks(16)
            .label(&format!("session {number}"))
            .create_anonymous()?;
        let session = Self {
            entries: Object::new(&region, "entries", || {
                Mutex::robust(HashMap::new_in(&region))
            })?,
            requests: Object::new(&region, "requests", || Mutex::robust(0))?,
        };
        // This thread has only made it: a thread can use 128 regions at a time.
        region.detach()?;
        Ok(session)
    }

    fn serve(&self, key: &str) -> Result<u64, AnyError> {
        *self.requests.get().lock()? += 1;
        let mut entries = self.entries.get().lock()?;
        let mut entries = entries.edit();
        let entry = entries.get_or_insert_str_with(key, || 0)?;
        *entry += 1;
        Ok(*entry)
    }
}

fn main() -> Result<(), AnyError> {
    let served: u64 = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..2 {
            let (sender, sessions) = mpsc::sync_channel::<Arc<Session>>(8);
            let work = move || -> Result<u64, AnyError> {
                let mut served = 0;
                for session in sessions {
                    for key in ["one", "two", "one"] {
                        session.serve(key)?;
                        served += 1;
                    }
                }
                Ok(served)
            };
            workers.push((sender, scope.spawn(work)));
        }
        for number in 0..200 {
            let session = Arc::new(Session::new(number)?);
            for (worker, _) in &workers {
                worker.send(session.clone())?;
            }
            // Whoever is the last to drop it ends the session.
        }
        let mut served = 0;
        for (sender, worker) in workers {
            drop(sender);
            served += worker.join().map_err(|_| "a worker panicked")??;
        }
        Ok::<_, AnyError>(served)
    })?;
    println!("200 sessions, {served} requests");
    Ok(())
}
