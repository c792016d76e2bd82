//! RTEMS's message queue manager, rule by rule.

use core::time::Duration;
use latchwork::classic::{
    Classic, ClassicOptions, Id, LOCAL_NODE, NO_WAIT, PRIORITY, SEARCH_ALL_NODES,
    SEARCH_LOCAL_NODE, SEARCH_OTHER_NODES, Status, WAIT, message_queue_buffer_size,
};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Trial};

const MAIL: u32 = u32::from_be_bytes(*b"MAIL");

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap()
}

fn table(region: &Region) -> Classic<'_> {
    let options = ClassicOptions::new().semaphores(0).message_queues(2);
    Classic::create(region, &options.tick(Duration::from_millis(1))).unwrap()
}

fn queue(table: Classic<'_>, count: u32, attributes: u32) -> Id {
    let mut id = 0;
    let status = table.message_queue_create(MAIL, count, 16, attributes, Some(&mut id));
    assert_eq!(status, Status::Successful);
    id
}

/// What a receiver without patience gets.
fn receive(table: Classic<'_>, id: Id) -> (Status, Vec<u8>) {
    let (mut buffer, mut size) = ([0; 16], 0);
    let status = table.message_queue_receive(id, Some(&mut buffer), Some(&mut size), NO_WAIT, 0);
    (status, buffer[..size].to_vec())
}

/// A child that waits, and ends with the status' code, or 100 and the message's first byte.
fn receiver(trial: &Trial, table: Classic<'_>, id: Id) -> Child {
    let child = Child::fork(|| {
        let (mut buffer, mut size) = ([0; 16], 0);
        let status = table.message_queue_receive(id, Some(&mut buffer), Some(&mut size), WAIT, 0);
        std::process::exit(match status {
            Status::Successful => 100 + i32::from(buffer[0]),
            other => other.code() as i32,
        })
    });
    trial.wait_until(|| child.is_in_futex());
    child
}

fn expect(mut child: Child, code: i32) {
    assert_eq!(child.wait(), Exit::Code(code));
}

#[test]
fn creation_checks_in_order() {
    let _trial = Trial::begin("creation_checks_in_order");
    let region = region();
    let table = table(&region);
    let mut id = 7;
    let create = |name, count, size, id: Option<&mut Id>| {
        table.message_queue_create(name, count, size, 0, id)
    };
    assert_eq!(create(0, 0, 0, None), Status::InvalidName);
    assert_eq!(create(MAIL, 0, 0, None), Status::InvalidAddress);
    assert_eq!(create(MAIL, 0, 0, Some(&mut id)), Status::InvalidNumber);
    assert_eq!(create(MAIL, 1, 0, Some(&mut id)), Status::InvalidSize);
    assert_eq!(
        create(MAIL, 1, usize::MAX, Some(&mut id)),
        Status::InvalidSize
    );
    assert_eq!(
        create(MAIL, u32::MAX, 1, Some(&mut id)),
        Status::InvalidNumber
    );
    // Up to a buffer that ends with the address space the size is right, and then the number is not.
    let largest = usize::MAX - 31;
    for (count, size, status) in [
        (u32::MAX, usize::MAX, Status::InvalidSize),
        (1, largest + 1, Status::InvalidSize),
        (u32::MAX, largest + 1, Status::InvalidSize),
        (u32::MAX, largest, Status::InvalidNumber),
        (2, largest, Status::InvalidNumber),
        (2, usize::MAX / 2, Status::InvalidNumber),
        (u32::MAX, u32::MAX as usize + 1, Status::InvalidNumber),
        // No more than a matter of memory.
        (1, largest, Status::Unsatisfied),
        (1, u32::MAX as usize + 1, Status::Unsatisfied),
        (1, 1 << 31, Status::Unsatisfied),
    ] {
        let answer = create(MAIL, count, size, Some(&mut id));
        assert_eq!(answer, status, "{count} messages of {size} bytes");
    }
    assert_eq!(
        create(MAIL, 1 << 20, 1 << 10, Some(&mut id)),
        Status::Unsatisfied
    );
    assert_eq!(id, 7);
    queue(table, 1, 0);
    queue(table, 1, 0);
    assert_eq!(create(MAIL, 1, usize::MAX, Some(&mut id)), Status::TooMany);
}

/// A queue whose memory would be the caller's: it takes the region's, but the caller's must be as long as RTEMS wants.
#[test]
fn construction_checks_the_storage_last() {
    let _trial = Trial::begin("construction_checks_the_storage_last");
    let region = region();
    let table = table(&region);
    let mut id = 7;
    let construct = |name, count, size, storage, id: Option<&mut Id>| {
        table.message_queue_construct(name, count, size, 0, storage, id)
    };
    let storage = 3 * message_queue_buffer_size(13);
    assert_eq!(storage, 3 * 40);
    for (name, count, size, given, status) in [
        (0, 0, 0, 0, Status::InvalidName),
        (MAIL, 0, 0, 0, Status::InvalidNumber),
        (MAIL, 1, 0, 0, Status::InvalidSize),
        (MAIL, 1, usize::MAX, 0, Status::InvalidSize),
        (MAIL, u32::MAX, usize::MAX - 31, 0, Status::InvalidNumber),
        (MAIL, 3, 13, storage - 1, Status::Unsatisfied),
        (MAIL, 3, 13, storage + 1, Status::Unsatisfied),
        (MAIL, 3, 13, usize::MAX, Status::Unsatisfied),
    ] {
        let answer = construct(name, count, size, given, Some(&mut id));
        assert_eq!(
            answer, status,
            "{count} messages of {size} bytes in {given}"
        );
    }
    let answer = construct(MAIL, 0, 0, 0, None);
    assert_eq!((answer, id), (Status::InvalidAddress, 7));
    let answer = construct(MAIL, 3, 13, storage, Some(&mut id));
    assert_eq!(answer, Status::Successful);
    assert_eq!(table.message_queue_max_message_size(id), Some(13));
    queue(table, 1, 0);
    let answer = construct(MAIL, 3, 13, 0, Some(&mut id));
    assert_eq!(answer, Status::TooMany);
}

#[test]
fn ident_finds_the_first_of_a_name() {
    let _trial = Trial::begin("ident_finds_the_first_of_a_name");
    let region = region();
    let table = table(&region);
    let (first, second) = (queue(table, 1, 0), queue(table, 1, 0));
    let mut id = 0;
    assert_eq!(
        table.message_queue_ident(MAIL, SEARCH_ALL_NODES, None),
        Status::InvalidAddress
    );
    assert_eq!(
        table.message_queue_ident(0, SEARCH_ALL_NODES, Some(&mut id)),
        Status::InvalidName
    );
    assert_eq!(
        table.message_queue_ident(1, SEARCH_ALL_NODES, Some(&mut id)),
        Status::InvalidName
    );
    assert_eq!(
        table.message_queue_ident(MAIL, SEARCH_ALL_NODES, Some(&mut id)),
        Status::Successful
    );
    assert_eq!(id, first);
    for (node, status) in [
        (LOCAL_NODE, Status::Successful),
        (SEARCH_LOCAL_NODE, Status::Successful),
        (SEARCH_OTHER_NODES, Status::InvalidName),
        (2, Status::InvalidName),
    ] {
        assert_eq!(table.message_queue_ident(MAIL, node, Some(&mut id)), status);
        assert_eq!(id, first);
    }
    assert_eq!(table.message_queue_max_message_size(first), Some(16));
    assert_eq!(table.message_queue_max_message_size(first + 2), None);
    assert_eq!(table.message_queue_delete(first), Status::Successful);
    assert_eq!(
        table.message_queue_ident(MAIL, SEARCH_ALL_NODES, Some(&mut id)),
        Status::Successful
    );
    assert_eq!(id, second);
}

#[test]
fn sending_checks_in_order() {
    let _trial = Trial::begin("sending_checks_in_order");
    let region = region();
    let table = table(&region);
    let id = queue(table, 1, 0);
    let long = [0; 17];
    for send in [
        Classic::message_queue_send as fn(&_, _, Option<&[u8]>) -> _,
        Classic::message_queue_urgent,
    ] {
        assert_eq!(send(&table, id + 1, None), Status::InvalidAddress);
        assert_eq!(send(&table, id + 1, Some(&long)), Status::InvalidId);
        assert_eq!(send(&table, id, Some(&long)), Status::InvalidSize);
        assert_eq!(send(&table, id, Some(b"")), Status::Successful);
        assert_eq!(send(&table, id, Some(b"")), Status::TooMany);
        assert_eq!(send(&table, id, Some(&long)), Status::InvalidSize);
        assert_eq!(receive(table, id), (Status::Successful, vec![]));
    }
    let mut count = 9;
    assert_eq!(
        table.message_queue_broadcast(id, Some(b""), None),
        Status::InvalidAddress
    );
    assert_eq!(
        table.message_queue_broadcast(id, Some(&long), Some(&mut count)),
        Status::InvalidSize
    );
    assert_eq!(
        table.message_queue_broadcast(id, Some(b"x"), Some(&mut count)),
        Status::Successful
    );
    assert_eq!(count, 0);
    assert_eq!(receive(table, id).0, Status::Unsatisfied);
}

#[test]
fn receiving_checks_in_order_and_times_out() {
    let _trial = Trial::begin("receiving_checks_in_order_and_times_out");
    let region = region();
    let table = table(&region);
    let id = queue(table, 2, 0);
    let (mut buffer, mut size) = ([0; 16], 0);
    let got = table.message_queue_receive(id + 1, None, Some(&mut size), NO_WAIT, 0);
    assert_eq!(got, Status::InvalidAddress);
    let got = table.message_queue_receive(id + 1, Some(&mut buffer), Some(&mut size), NO_WAIT, 0);
    assert_eq!(got, Status::InvalidId);
    let got = table.message_queue_receive(id, Some(&mut buffer), Some(&mut size), WAIT, 2);
    assert_eq!(got, Status::Timeout);
    table.message_queue_send(id, Some(b"1"));
    table.message_queue_urgent(id, Some(b"22"));
    let mut count = 0;
    table.message_queue_get_number_pending(id, Some(&mut count));
    assert_eq!(count, 2);
    let got = table.message_queue_receive(id, Some(&mut [0; 1]), Some(&mut size), NO_WAIT, 0);
    assert_eq!(got, Status::InvalidSize);
    assert_eq!(receive(table, id), (Status::Successful, b"22".to_vec()));
    assert_eq!(
        table.message_queue_flush(id, Some(&mut count)),
        Status::Successful
    );
    assert_eq!(count, 1);
    assert_eq!(receive(table, id).0, Status::Unsatisfied);
}

#[test]
fn a_broadcast_and_a_deletion_reach_all_waiters() {
    let trial = Trial::begin("a_broadcast_and_a_deletion_reach_all_waiters");
    let region = region();
    let table = table(&region);
    for attributes in [0, PRIORITY] {
        let id = queue(table, 1, attributes);
        let waiting = [0, 1, 2].map(|_| receiver(&trial, table, id));
        let mut count = 0;
        table.message_queue_broadcast(id, Some(&[5]), Some(&mut count));
        assert_eq!(count, 3);
        waiting.into_iter().for_each(|child| expect(child, 105));
        let waiting = [0, 1].map(|_| receiver(&trial, table, id));
        assert_eq!(
            table.message_queue_flush(id, Some(&mut count)),
            Status::Successful
        );
        table.message_queue_send(id, Some(&[6]));
        assert_eq!(table.message_queue_delete(id), Status::Successful);
        let [first, second] = waiting;
        expect(first, 106);
        expect(second, Status::ObjectWasDeleted.code() as i32);
        assert_eq!(table.message_queue_delete(id), Status::InvalidId);
        assert_eq!(table.message_queue_send(id, Some(b"")), Status::InvalidId);
        // Another queue in the same place has another id.
        let next = queue(table, 1, attributes);
        assert_ne!(next, id);
        assert_eq!(table.message_queue_delete(next), Status::Successful);
    }
}
