//! Limits of what a coproc may use.

use super::coproc_support::isolated;
use super::{counted, drop_privileges, refused, returned};
use latchwork::coproc::{Attributes, Outcome};
use latchwork::region::Region;

#[test]
fn limits_take_effect() {
    fn limits(_: &Region, (): ()) -> i32 {
        let limit = |resource| {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the kernel fills in the variable.
            unsafe { libc::getrlimit(resource, &raw mut limit) };
            (limit.rlim_cur, limit.rlim_max)
        };
        assert_eq!(limit(libc::RLIMIT_AS), (32 << 30, 32 << 30));
        assert_eq!(limit(libc::RLIMIT_CORE), (0, 0));
        let (soft, hard) = limit(libc::RLIMIT_CPU);
        assert_eq!(soft, 7);
        assert!(hard > soft);
        0
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new()
        .address_space(32 << 30)
        .core_size(0)
        .cpu_time(7);
    assert_eq!(returned(&coprocs, limits, (), &attributes), 0);
}

#[test]
fn too_much_address_space_fails_in_the_coproc_alone() {
    fn greedy(_: &Region, (): ()) -> i32 {
        i32::from(Vec::<u8>::new().try_reserve_exact(1 << 30).is_err())
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().address_space(1 << 30);
    assert_eq!(returned(&coprocs, greedy, (), &attributes), 1);
    assert_eq!(returned(&coprocs, greedy, (), &Attributes::new()), 0);
}

#[test]
fn used_up_processor_time_is_announced_before_it_kills() {
    fn spin(_: &Region, (): ()) -> i32 {
        loop {
            core::hint::spin_loop();
        }
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().cpu_time(1).core_size(0);
    let exit = coprocs
        .spawn_value(spin, (), &attributes)
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(
        exit.outcome,
        Outcome::Signalled {
            signal: libc::SIGXCPU,
            core: false
        }
    );
}

#[test]
fn limits_above_the_hard_ones_are_refused_by_name() {
    isolated(|| {
        for (resource, most) in [
            (libc::RLIMIT_AS, 64 << 30),
            (libc::RLIMIT_CORE, 64 << 30),
            (libc::RLIMIT_CPU, 1000),
        ] {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            // SAFETY: the kernel reads the limit.
            assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
        }
        drop_privileges();
        let counted = counted();
        for (attributes, name) in [
            (Attributes::new().address_space(65 << 30), "address_space"),
            (Attributes::new().core_size(65 << 30), "core_size"),
            (Attributes::new().cpu_time(1000), "cpu_time"),
        ] {
            refused(&counted, &attributes, name, libc::EPERM);
        }
    });
}
