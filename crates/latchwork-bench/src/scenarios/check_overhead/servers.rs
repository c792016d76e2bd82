//! Servers under load: clients in this process request the values that they have stored, and compare them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid, kill_process};

use super::run::{Run, Running};

/// How many run at the same time.
const CLIENTS: u32 = 8;
/// Requests that a client sends before it reads the answers.
const AT_ONCE: u32 = 16;
/// The size of a value.
const BYTES: usize = 100;
/// The time within which a server must listen.
const START: Duration = Duration::from_secs(300);

/// A request, and the only correct answer to it.
struct Exchange {
    request: String,
    answer: String,
}

/// The repeated requests of a client: it stores a value, and reads it.
type Talk = fn(key: &str, value: &str) -> [Exchange; 2];

/// Four threads of memcached.
pub(super) fn memcached(run: &Run) -> io::Result<f64> {
    let mut arguments = vec!["-s", "socket", "-t", "4"];
    if geteuid().is_root() {
        // It refuses to run as root without this.
        arguments.extend(["-u", "root"]);
    }
    let talk: Talk = |key, value| {
        [
            Exchange {
                request: format!("set {key} 0 0 {BYTES}\r\n{value}\r\n"),
                answer: "STORED\r\n".into(),
            },
            Exchange {
                request: format!("get {key}\r\n"),
                answer: format!("VALUE {key} 0 {BYTES}\r\n{value}\r\nEND\r\n"),
            },
        ]
    };
    let server = run.start("memcached", &arguments)?;
    let figure = load(run, talk)?;
    if let Some(id) = server.id() {
        kill_process(id, Signal::TERM)?;
    }
    end(run, server)?;
    Ok(figure)
}

/// Redis as installed: one thread that serves, and others for background work. (More threads for its sockets spin for
/// each other, and take the clients' processors.)
pub(super) fn redis(run: &Run) -> io::Result<f64> {
    let talk: Talk = |key, value| {
        [
            Exchange {
                request: format!("SET {key} {value}\r\n"),
                answer: "+OK\r\n".into(),
            },
            Exchange {
                request: format!("GET {key}\r\n"),
                answer: format!("${BYTES}\r\n{value}\r\n"),
            },
        ]
    };
    let arguments = [
        "--port",
        "0",
        "--unixsocket",
        "socket",
        "--save",
        "",
        "--appendonly",
        "no",
    ];
    let server = run.start("redis-server", &arguments)?;
    let figure = load(run, talk)?;
    // It does not answer this request.
    connect(&run.file("socket"))?.write_all(b"SHUTDOWN NOSAVE\r\n")?;
    end(run, server)?;
    Ok(figure)
}

fn end(run: &Run, server: Running) -> io::Result<()> {
    let status = server.end()?;
    run.well(status)
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Err(_) if began.elapsed() < START => thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

/// Requests in a second.
fn load(run: &Run, talk: Talk) -> io::Result<f64> {
    let rounds = run.much(1_500);
    let clients = (0..CLIENTS)
        .map(|_| connect(&run.file("socket")))
        .collect::<io::Result<Vec<_>>>()?;
    let began = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(number, client)| scope.spawn(move || ask(client, number, rounds, talk)))
            .collect();
        let panicked = |_| Err(io::Error::other("a client panicked"));
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })?;
    let requests = CLIENTS * rounds * AT_ONCE;
    Ok(f64::from(requests) / began.elapsed().as_secs_f64())
}

fn ask(mut client: UnixStream, number: u32, rounds: u32, talk: Talk) -> io::Result<()> {
    let key = |index: u32| format!("key-{number}-{index}");
    let value: String = (0..BYTES)
        .map(|index| char::from(b'a' + (index % 26) as u8))
        .collect();
    let exchanges: Vec<Exchange> = (0..AT_ONCE / 2)
        .flat_map(|index| talk(&key(index), &value))
        .collect();
    let requests: String = exchanges.iter().map(|one| one.request.as_str()).collect();
    let wanted: String = exchanges.iter().map(|one| one.answer.as_str()).collect();
    let mut answer = vec![0; wanted.len()];
    for _ in 0..rounds {
        client.write_all(requests.as_bytes())?;
        client.read_exact(&mut answer)?;
        if answer != wanted.as_bytes() {
            let said = String::from_utf8_lossy(&answer);
            return Err(io::Error::other(format!("a wrong answer: {said:?}")));
        }
    }
    Ok(())
}
