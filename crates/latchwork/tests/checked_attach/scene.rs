//! A region with objects of all kinds, and what a program does with them.

use latchwork::barrier::Barrier;
use latchwork::classic::{self, Classic, ClassicOptions};
use latchwork::completion::Completion;
use latchwork::condvar::Condvar;
use latchwork::mutex::in_region::{LockError, RegionGuard};
use latchwork::mutex::{InRegion, Mutex, Robust, Throughput};
use latchwork::once::RegionOnce;
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{Discipline, Queue, QueueOptions, Wait};
use latchwork::region::{
    Box, HashMap, List, PinnedFields, Region, RegionOptions, Shareable, String, TornSafe, Undo,
    Validate, Vec,
};
use latchwork::rwlock::RegionRwLock;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline as Order, MrspSemaphore,
    PriorityMutex, PriorityMutexOptions, priority_mutex,
};
use latchwork::sharing::Shared;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub type Lines = Mutex<Vec<Vec<u64>>, InRegion>;
pub type Prices = Mutex<HashMap<String, Vec<u32>>, InRegion<Throughput<Shared>>>;
pub type Names = Mutex<List<String>, InRegion>;
pub type Account = Mutex<Undo<Vec<AtomicU64>, 4>, InRegion>;
pub type Table = RegionRwLock<Vec<u64>, 4>;
pub type Text = Mutex<String, Robust>;
pub type Meeting = (
    Condvar<Shared>,
    Barrier<Shared>,
    Completion<Shared>,
    RegionOnce,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Shareable, Validate)]
#[repr(u8)]
pub enum Colour {
    Red = 1,
    Green = 4,
    Mixed(u8, bool, char) = 9,
}

#[derive(Shareable, TornSafe, PinnedFields, Validate)]
#[repr(C)]
pub struct Stock {
    #[pin]
    pub pieces: HashMap<u32, u64>,
    #[pin]
    pub orders: List<u64>,
    pub is_open: bool,
}

#[derive(Shareable, PinnedFields, Validate)]
#[repr(C)]
pub struct Shop {
    #[pin]
    pub stock: Mutex<Stock, InRegion>,
    pub colours: [Colour; 3],
    pub sign: char,
}

/// All that the scene holds is declared.
pub fn checked() -> RegionOptions {
    RegionOptions::new()
        .holds::<Lines>()
        .holds::<Prices>()
        .holds::<Names>()
        .holds::<Account>()
        .holds::<Table>()
        .holds::<Text>()
        .holds::<Meeting>()
        .holds::<Shop>()
        .holds::<Queue>()
        .holds::<Spsc>()
        .holds::<CountingSemaphore>()
        .holds::<MrspSemaphore>()
        .holds::<PriorityMutex<Vec<u64>>>()
        .holds::<Classic>()
        .holds::<u64>()
}

fn queue_options(discipline: Discipline) -> QueueOptions {
    QueueOptions::new(4, 100).discipline(discipline)
}

fn classic_options() -> ClassicOptions {
    ClassicOptions::new().semaphores(2).message_queues(2)
}

const NAME: u32 = classic::build_name(*b"TEST");

/// Fills a region without Robust locks' owners by thread IDs of its own: the calling thread is a task of it afterwards.
pub fn fill(region: &Region) {
    let _: Pin<&Lines> =
        (region.object("lines", || Mutex::in_region(Vec::new_in(region)))).unwrap();
    let _: Pin<&Prices> = (region.object("prices", || {
        Mutex::in_region_throughput(HashMap::new_in(region))
    }))
    .unwrap();
    let _: Pin<&Names> =
        (region.object("names", || Mutex::in_region(List::new_in(region)))).unwrap();
    let _: Pin<&Account> = (region.object("account", || {
        Mutex::in_region(Undo::new(Vec::new_in(region)))
    }))
    .unwrap();
    let _: Pin<&Table> =
        (region.object("table", || RegionRwLock::in_region(Vec::new_in(region)))).unwrap();
    let text: Pin<&Text> =
        (region.object("text", || Mutex::robust(String::new_in(region)))).unwrap();
    let meeting = || {
        (
            Condvar::shared(),
            Barrier::shared(3),
            Completion::shared(),
            RegionOnce::in_region(),
        )
    };
    region.object::<Meeting>("meeting", meeting).unwrap();
    let _: Pin<&Shop> = region
        .object("shop", || Shop {
            stock: Mutex::in_region(Stock {
                pieces: HashMap::new_in(region),
                orders: List::new_in(region),
                is_open: true,
            }),
            colours: [Colour::Red, Colour::Mixed(7, true, 'é'), Colour::Green],
            sign: '§',
        })
        .unwrap();
    add_to_all(region);
    text.lock().unwrap().edit().push_str("grüß Gott").unwrap();
    for (name, discipline) in [
        ("queue", Discipline::Racing),
        ("in order", Discipline::Fifo),
    ] {
        let queue = Queue::create(region, name, &queue_options(discipline)).unwrap();
        queue.send(&[8; 50]).unwrap();
        let block = Box::copied_in(&[7; 300], region).unwrap();
        queue.send_block(block, Wait::Not).unwrap();
    }
    let ended = Queue::create(region, "ended", &queue_options(Discipline::Racing)).unwrap();
    ended.delete().unwrap();
    let ring = Spsc::create(region, "ring", &QueueOptions::new(4, 40)).unwrap();
    ring.sender().unwrap().send(b"one").unwrap();
    CountingSemaphore::create(region, "count", 3, Order::Fifo).unwrap();
    CountingSemaphore::create(region, "gone", 1, Order::Fifo)
        .unwrap()
        .delete()
        .unwrap();
    let inherit = BinaryOptions::new().by_priority().inherit();
    drop(
        BinarySemaphore::create(region, "bus", &inherit)
            .unwrap()
            .obtain()
            .unwrap(),
    );
    let plan = PriorityMutex::create(region, "plan", &PriorityMutexOptions::new(), || {
        Vec::new_in(region)
    });
    plan.unwrap().lock().unwrap().edit().push(4_u64).unwrap();
    let classic = Classic::create(region, &classic_options()).unwrap();
    let mut id = 0;
    let made = classic.semaphore_create(NAME, 2, classic::DEFAULT_ATTRIBUTES, 0, Some(&mut id));
    assert_eq!(made, classic::Status::Successful);
    let made =
        classic.message_queue_create(NAME, 3, 16, classic::DEFAULT_ATTRIBUTES, Some(&mut id));
    assert_eq!(made, classic::Status::Successful);
    let sent = classic.message_queue_send(id, Some(b"classic"));
    assert_eq!(sent, classic::Status::Successful);
}

/// Adds to each container.
pub fn add_to_all(region: &Region) {
    let lines = region.find::<Lines>("lines").unwrap();
    let prices = region.find::<Prices>("prices").unwrap();
    let names = region.find::<Names>("names").unwrap();
    let account = region.find::<Account>("account").unwrap();
    let table = region.find::<Table>("table").unwrap();
    let shop = region.find::<Shop>("shop").unwrap();
    for number in 0..12_u64 {
        let mut line = Vec::new_in(region);
        line.extend_from_slice(&[number; 5]).unwrap();
        lines.lock().unwrap().edit().push(line).unwrap();
        let mut price = Vec::new_in(region);
        price.push(number as u32).unwrap();
        (prices.lock().unwrap().edit())
            .insert_str(&format!("piece {number}"), price)
            .unwrap();
        let name = String::from_str_in(&format!("name {number}"), region).unwrap();
        names.lock().unwrap().edit().push_back(name).unwrap();
        let mut account = account.lock().unwrap();
        (account.edit().get_pin_mut().edit())
            .push(AtomicU64::new(number))
            .unwrap();
        table.write().unwrap().edit().push(number).unwrap();
        let mut stock = shop.stock().lock().unwrap();
        let fields = stock.edit();
        fields.pieces.edit().insert(number as u32, number).unwrap();
        fields.orders.edit().push_back(number).unwrap();
    }
}

/// The guard of a region lock, also if an owner died; `None` if the lock cannot be had.
fn locked<'a, T: TornSafe>(
    lock: Result<RegionGuard<'a, T>, LockError<'a, T>>,
) -> Option<RegionGuard<'a, T>> {
    match lock {
        Ok(guard) => Some(guard),
        Err(LockError::OwnerDied(died)) => Some(died.make_consistent()),
        Err(_) => None,
    }
}

/// Uses all that is there: reads each value, and changes each container. Returns a number that depends on what it read.
pub fn use_all(region: &Region) -> u64 {
    let mut sum = 0;
    if let Ok(lines) = region.find::<Lines>("lines")
        && let Some(mut lines) = locked(lines.lock())
    {
        sum += lines
            .iter()
            .flat_map(|line| line.iter())
            .fold(0, |sum: u64, one| sum.wrapping_add(*one));
        let mut line = Vec::new_in(region);
        if line.push(1).is_ok() {
            let _ = lines.edit().push(line);
        }
        if !lines.is_empty() {
            drop(lines.edit().swap_remove(0));
        }
        lines.edit().clear();
        let _ = lines.edit().shrink_to_fit();
    }
    if let Ok(prices) = region.find::<Prices>("prices") {
        let guard = match prices.lock() {
            Ok(guard) => Some(guard),
            Err(LockError::OwnerDied(died)) => Some(died.make_consistent()),
            Err(_) => None,
        };
        if let Some(mut prices) = guard {
            sum += prices
                .iter()
                .map(|(name, price)| {
                    name.len() as u64 + price.iter().map(|one| u64::from(*one)).sum::<u64>()
                })
                .sum::<u64>();
            let _ = prices.get("piece 3").map(|price| price.len());
            let mut price = Vec::new_in(region);
            let _ = price.push(9);
            let _ = prices.edit().insert_str("new", price);
            drop(prices.edit().remove("piece 3"));
            prices.edit().clear();
        }
    }
    if let Ok(names) = region.find::<Names>("names")
        && let Some(mut names) = locked(names.lock())
    {
        sum += names
            .iter()
            .rev()
            .map(|name| name.chars().count() as u64)
            .sum::<u64>();
        if let Ok(name) = String::from_str_in("new", region) {
            let _ = names.edit().push_front(name);
        }
        drop(names.edit().pop_back());
        names.edit().clear();
    }
    if let Ok(account) = region.find::<Account>("account")
        && let Some(mut account) = locked(account.lock())
    {
        let mut update = account.edit().begin();
        let _ = update.store_at(|cells| cells, &3, 5);
        update.commit();
        sum += account
            .get()
            .iter()
            .fold(0, |sum: u64, cell| sum.wrapping_add(cell.load(Relaxed)));
        let _ = account.edit().get_pin_mut().edit().push(AtomicU64::new(1));
    }
    if let Ok(table) = region.find::<Table>("table") {
        if let Ok(table) = table.read() {
            sum += table.iter().fold(0, |sum: u64, one| sum.wrapping_add(*one));
        }
        if let Ok(mut table) = table.write() {
            let _ = table.edit().push(2);
        }
    }
    if let Ok(text) = region.find::<Text>("text") {
        use latchwork::mutex::LockError;
        let guard = match text.lock() {
            Ok(guard) => Some(guard),
            Err(LockError::OwnerDied(died)) => Some(died.make_consistent()),
            Err(_) => None,
        };
        if let Some(mut text) = guard {
            sum += text.chars().rev().count() as u64;
            let _ = text.edit().push_str("!");
        }
    }
    if let Ok(shop) = region.find::<Shop>("shop") {
        sum += format!("{:?} {}", shop.colours, shop.sign).len() as u64;
        if let Some(mut stock) = locked(shop.stock().lock()) {
            sum += u64::from(stock.is_open)
                + stock.pieces.len() as u64
                + stock
                    .orders
                    .iter()
                    .fold(0, |sum: u64, one| sum.wrapping_add(*one));
            let fields = stock.edit();
            let mut pieces = fields.pieces;
            let _ = pieces.as_mut().edit().insert(99, 1);
            let _ = pieces.edit().remove(&3);
            let mut orders = fields.orders;
            orders.as_mut().edit().retain(|order| *order % 2 == 0);
            let _ = orders.edit().push_back(1);
        }
    }
    if let Ok(meeting) = region.find::<Meeting>("meeting") {
        let (condvar, barrier, completion, once) = meeting.get_ref();
        condvar.notify_all();
        let soon = latchwork::time::Deadline::after(Duration::from_micros(50));
        let _ = barrier.wait_until(soon);
        completion.complete();
        let _ = completion.try_wait();
        let _ = once.call(|| ());
    }
    sum += plan(region).unwrap_or(0);
    queues(region);
    semaphores(region);
    sum
}

fn queues(region: &Region) {
    for (name, discipline) in [
        ("queue", Discipline::Racing),
        ("in order", Discipline::Fifo),
        ("ended", Discipline::Racing),
    ] {
        let options = queue_options(discipline);
        let Ok(queue) =
            Queue::open(region, name).or_else(|_| Queue::create(region, name, &options))
        else {
            continue;
        };
        for _ in 0..20 {
            let Ok(message) = queue.try_receive_held() else {
                break;
            };
            assert!(message.iter().map(|byte| u64::from(*byte)).sum::<u64>() < 1 << 20);
        }
        let _ = queue.try_send(&[3; 60]);
        let _ = queue.broadcast(b"to nobody");
        let _ = queue.flush();
        let _ = queue.delete();
    }
    if let Ok(ring) = Spsc::open(region, "ring") {
        if let Ok(mut receiver) = ring.receiver() {
            let _ = receiver.try_receive(&mut [0; 40]);
        }
        if let Ok(mut sender) = ring.sender() {
            let _ = sender.try_send(b"more");
        }
        let _ = ring.delete();
    }
    if let Ok(classic) = Classic::open(region) {
        let mut id = 0;
        if classic.message_queue_ident(NAME, 0, Some(&mut id)) == classic::Status::Successful {
            let mut size = 0;
            let _ = classic.message_queue_receive(
                id,
                Some(&mut [0; 64]),
                Some(&mut size),
                classic::NO_WAIT,
                0,
            );
        }
        if classic.semaphore_ident(NAME, 0, Some(&mut id)) == classic::Status::Successful {
            let _ = (
                classic.semaphore_obtain(id, classic::NO_WAIT, 0),
                classic.semaphore_release(id),
            );
            let _ = classic.semaphore_delete(id);
        }
    }
}

fn plan(region: &Region) -> Option<u64> {
    let plan = PriorityMutex::<Vec<u64>>::open(region, "plan").ok()?;
    let mut steps = match plan.lock_for(Duration::from_micros(50)) {
        Ok(steps) => steps,
        Err(priority_mutex::LockError::OwnerDied(died)) => died.make_consistent(),
        Err(_) => return None,
    };
    let _ = steps.edit().push(1);
    Some(steps.iter().fold(0, |sum: u64, one| sum.wrapping_add(*one)))
}

fn semaphores(region: &Region) {
    let soon = Duration::from_micros(50);
    if let Ok(count) = CountingSemaphore::open(region, "count") {
        let _ = (
            count.try_obtain(),
            count.obtain_for(soon),
            count.release(),
            count.flush(),
            count.delete(),
        );
    }
    if let Ok(count) = CountingSemaphore::create(region, "another", 1, Order::Priority) {
        let _ = (count.try_obtain(), count.release());
    }
    if let Ok(bus) = BinarySemaphore::open(region, "bus") {
        drop(bus.obtain_for(soon));
        let _ = (bus.release(), bus.flush(), bus.delete());
    }
}
