//! Programs that use Latchwork from Rust. Each file of `src/bin` is one: `cargo run -p latchwork-examples --bin counter`.
//!
//! | program | shows |
//! | --- | --- |
//! | `pool` | a pool of workers with a supervisor, and kills (`docs/examples` has a page for this program and the next four) |
//! | `kv` | a key-value server of several processes |
//! | `pipeline` | real-time priorities, and a mutex with a ceiling |
//! | `readings` | the sender of a queue whose receiver is in C |
//! | `counter` | programs that share a named region; a killed owner's data is repaired; locks in the fields of a struct |
//! | `sessions` | a server with a region for each session, in a struct that holds the region and its objects |
//! | `lost_wakeup` | waiters for a region lock, killed as an unlock has woken them: the others get the lock |
//! | `queue_epoll` | a queue and other descriptors, in one epoll loop |
//! | `queue_tokio` | a queue in tokio |
