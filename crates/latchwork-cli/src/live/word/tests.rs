use super::*;
use latchwork_testkit::Seed;

/// For arbitrary bytes around a word, and an arbitrary call, the functions return some result.
#[test]
fn any_bytes_are_classified() {
    let memory = Memory::of(std::process::id()).unwrap();
    let mut random = Seed::announced().rng(0);
    let mut bytes = vec![0u8; 256];
    for round in 0..20_000u32 {
        // Small numbers are more similar to locks than large ones.
        for word in bytes.chunks_exact_mut(4) {
            let value = random.u32(..) >> random.u32(..32) & !random.u32(..);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        let begin = bytes.as_ptr().addr() as u64;
        let calls = [Call::Wait, Call::WaitMany, Call::LockPi, Call::RequeuePi];
        let sleep = Sleep {
            address: begin + u64::from(random.u8(..128)),
            call: calls[round as usize % calls.len()],
            private: random.bool(),
            expected: random.u32(..) >> random.u32(..32),
            is_limited: random.bool(),
        };
        let found = classify(&sleep, &memory, &|tid| tid % 2 == 0);
        assert!((begin - 64..begin + 256).contains(&found.base), "{found:?}");
        let _ = classify_held(sleep.address, &memory);
    }
}

#[test]
fn unmapped_addresses_are_plain_words() {
    let memory = Memory::of(std::process::id()).unwrap();
    for address in [0, 1, 4096, 1 << 47, u64::MAX - 8, u64::MAX] {
        let sleep = Sleep {
            address,
            call: Call::Wait,
            private: true,
            expected: 1,
            is_limited: false,
        };
        let found = classify(&sleep, &memory, &|_| true);
        assert_eq!(
            (found.kind, found.owner),
            (Kind::Word, None),
            "{address:#x}"
        );
    }
}
