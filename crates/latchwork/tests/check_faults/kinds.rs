//! The kinds of locks, made by name.

use latchwork::check::{Checkable, Checked};
use latchwork::mutex::{Inherit, InheritPlain, Protect, Throughput, WaitWake};
use latchwork::sharing::Shared;
use latchwork::spin::Spin;

/// A protocol that can be made without parameters.
pub trait Make: Checkable + Send + Sync + 'static {
    const NAME: &'static str;
    fn make() -> Self;

    fn checked(name: &str) -> Checked<Self>
    where
        Self: Sized,
    {
        Checked::named(name, Self::make())
    }
}

/// The usual one.
pub fn plain(name: &str) -> Checked<WaitWake> {
    WaitWake::checked(name)
}

macro_rules! kinds {
    ($($ty:ty, $name:literal, $make:expr;)*) => {$(
        impl Make for $ty {
            const NAME: &'static str = $name;
            fn make() -> Self {
                $make
            }
        }
    )*};
}

kinds! {
    WaitWake, "wait-wake", Self::new();
    WaitWake<Shared>, "shared wait-wake", Self::new();
    Throughput, "throughput", Self::new();
    Inherit, "inherit", Self::new();
    InheritPlain, "plain inherit", Self::new();
    Protect, "protect", Self::with_ceiling(90);
    Spin, "spin", Self::new();
}

/// A row for each kind: `each!(rows, f)` adds `f::<P>()` for all `P`.
#[macro_export]
macro_rules! each {
    ($rows:ident, $make:ident) => {
        $rows.extend([
            $make::<latchwork::mutex::WaitWake>(),
            $make::<latchwork::mutex::WaitWake<latchwork::sharing::Shared>>(),
            $make::<latchwork::mutex::Throughput>(),
            $make::<latchwork::mutex::Inherit>(),
            $make::<latchwork::mutex::InheritPlain>(),
            $make::<latchwork::mutex::Protect>(),
            $make::<latchwork::spin::Spin>(),
        ]);
    };
}
