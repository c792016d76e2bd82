//! A key-value server of several processes. Each worker process serves connections, and all of them have the map in
//! their memory. A killed worker breaks its connection and loses nothing; the map outlives the whole server.
//!
//!     kv serve NAME [WORKERS]        runs the server, until it is killed
//!     kv NAME set KEY VALUE          asks the server; also get KEY, delete KEY, list
//!     kv trial NAME                  a server, clients, and kills of workers
//!
//! `docs/examples/key-value-server.md` walks through it.
#![allow(unsafe_code)]

use latchwork::coproc::{
    Attributes, Coprocs, Event, Happening, Restart, Signal, Spec, Supervisor, descriptors,
};
use latchwork::region::{HashMap, Region, RegionOptions, String as SharedString};
use latchwork::rwlock::{LockError, RegionRwLock};
use latchwork::time::Deadline;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type AnyError = Box<dyn Error + Send + Sync>;
type Map = HashMap<SharedString, SharedString>;
type Store = RegionRwLock<Map>;

const KEYS: usize = 150;
const CLIENTS: usize = 3;
const KILLS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(10);

fn region_name(name: &str) -> String {
    format!("kv-{name}")
}

/// A socket without a file, which goes with the server.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("latchwork-kv-{name}"))
}

/// The lock to read or to write, whoever died with it.
macro_rules! locked {
    ($store:expr, $call:ident) => {
        loop {
            match $store.$call() {
                // A worker was killed in the middle of a change, which this finishes or undoes. The call has the lock
                // to write, even if it came to read.
                Err(LockError::OwnerDied(mut died)) => {
                    died.edit().repair();
                    drop(died.make_consistent());
                }
                other => break other?,
            }
        }
    };
}

/// The answer to a line of a client.
fn answer(region: &Region, store: Pin<&Store>, line: &str) -> Result<String, AnyError> {
    let mut words = line.splitn(3, ' ');
    let words = [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
    Ok(match words {
        ["get", key, ""] => {
            let map = locked!(store, read);
            let value = map.get(key).map(|value| value.as_str().to_owned());
            value.unwrap_or_else(|| "no such key".into())
        }
        ["set", key, value] => {
            let value = SharedString::from_str_in(value, region)?;
            locked!(store, write).edit().insert_str(key, value)?;
            "stored".into()
        }
        ["delete", key, ""] => match locked!(store, write).edit().discard(key) {
            true => "deleted".into(),
            false => "no such key".into(),
        },
        ["list", "", ""] => {
            let map = locked!(store, read);
            let mut keys: Vec<_> = map.keys().map(|key| key.as_str().to_owned()).collect();
            keys.sort_unstable();
            keys.join(" ")
        }
        _ => "? get KEY | set KEY VALUE | delete KEY | list".into(),
    })
}

/// A worker: serves one connection after the other.
fn work(region: &Region) -> Result<(), AnyError> {
    let listener = UnixListener::from(descriptors().pop().ok_or("no listener")?);
    let store = region.find::<Store>("store")?;
    loop {
        let (stream, _) = listener.accept()?;
        let mut replies = stream.try_clone()?;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let reply = answer(region, store, &line).unwrap_or_else(|error| error.to_string());
            // A client that has gone gets no reply.
            if writeln!(replies, "{reply}").is_err() {
                break;
            }
        }
    }
}

fn worker(region: &Region, (): ()) -> i32 {
    // It ends by an error or a kill.
    if let Err(error) = work(region) {
        eprintln!("a worker: {error}");
    }
    1
}

/// The socket. The workers of a server that was killed may still have it for a moment.
fn listen(name: &str) -> io::Result<UnixListener> {
    let begin = Instant::now();
    loop {
        match UnixListener::bind_addr(&address(name)?) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// The map and its workers, which the next call of the supervisor starts.
fn server(name: &str, workers: usize) -> Result<Supervisor, AnyError> {
    let region = RegionOptions::new()
        .max_bytes(64 << 20)
        .attach_or_create(&region_name(name))?;
    region.object("store", || Store::in_region(Map::new_in(&region)))?;
    let listener = listen(name)?;
    // SAFETY: no static owns a descriptor, or anything in a region.
    let mut supervisor = Supervisor::new(unsafe { Coprocs::new(&region)? });
    for number in 0..workers {
        let name = format!("kv worker {number}");
        let attributes = Attributes::new()
            .name(&name)
            .descriptor(listener.try_clone()?)
            .die_with_parent();
        let spec = Spec::new(&name, move |coprocs| {
            coprocs.spawn_value(worker, (), &attributes)
        });
        let minute = Duration::from_secs(60);
        let spec = spec.restart(Restart::Always).limit(100, minute);
        supervisor.add(spec.back_off(Duration::from_millis(1), Duration::from_millis(100)));
    }
    Ok(supervisor)
}

fn print(event: &Event) {
    match &event.what {
        Happening::Started { pid } => println!("{}: process {pid}", event.name),
        Happening::Ended(exit) => println!("{}: {:?}", event.name, exit.outcome),
        Happening::Restarted { pid, .. } => println!("{}: again, process {pid}", event.name),
        other => println!("{}: {other:?}", event.name),
    }
}

fn serve(name: &str, workers: usize) -> Result<(), AnyError> {
    let mut supervisor = server(name, workers)?;
    loop {
        let events = supervisor.next_events(None);
        if events.is_empty() {
            return Err("no worker is left".into());
        }
        events.iter().for_each(print);
    }
}

/// Asks the server, in a connection of its own.
fn ask(name: &str, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    writeln!(stream, "{line}")?;
    let mut reply = String::new();
    match BufReader::new(stream).read_line(&mut reply)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(reply.trim_end().to_owned()),
    }
}

/// As `ask`; a worker that was killed before it replied is asked again, as another one. Each command may be repeated.
fn insist(name: &str, line: &str) -> String {
    loop {
        if let Ok(reply) = ask(name, line) {
            return reply;
        }
    }
}

/// A client: stores its keys, and reads them again.
fn client(name: &str, client: usize, stored: &AtomicUsize) {
    for key in 0..KEYS {
        let line = format!("set {client}-{key} value {key}");
        assert_eq!(insist(name, &line), "stored");
        // Relaxed: it only counts.
        stored.fetch_add(1, Ordering::Relaxed);
    }
    for key in 0..KEYS {
        let reply = insist(name, &format!("get {client}-{key}"));
        assert_eq!(reply, format!("value {key}"));
    }
}

fn trial(name: &str) -> Result<(), AnyError> {
    let mut supervisor = server(name, CLIENTS)?;
    let (stored, mut kills) = (AtomicUsize::new(0), 0);
    std::thread::scope(|scope| {
        let start = |number| {
            let stored = &stored;
            scope.spawn(move || client(name, number, stored))
        };
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        while kills < KILLS || clients.iter().any(|client| !client.is_finished()) {
            supervisor.next_events(Some(Deadline::after(Duration::from_millis(1))));
            // Now and then a worker is killed, wherever it is.
            let is_time = stored.load(Ordering::Relaxed) > kills * CLIENTS * KEYS / KILLS;
            let name = format!("kv worker {}", kills % CLIENTS);
            let worker = supervisor.running(&name);
            if let Some(worker) = worker.filter(|_| is_time && kills < KILLS) {
                kills += usize::from(worker.kill(Signal::KILL).is_ok());
            }
        }
    });
    println!(
        "{} keys stored and read, {kills} workers killed",
        CLIENTS * KEYS
    );
    // The name goes now, the memory with the last process.
    Ok(RegionOptions::unlink(&region_name(name))?)
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", name] => serve(name, 3),
        ["serve", name, workers] => serve(name, workers.parse()?),
        ["trial", name] => trial(name),
        [name, command @ ..] if !command.is_empty() => {
            println!("{}", ask(name, &command.join(" "))?);
            Ok(())
        }
        _ => Err("kv serve NAME [WORKERS] | kv NAME COMMAND | kv trial NAME".into()),
    }
}
