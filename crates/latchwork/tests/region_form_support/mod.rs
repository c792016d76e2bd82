//! Tests that run with each form of the region lock.

/// Makes a test of each function for each form, which is its parameter.
macro_rules! with_every_form {
    ($($name:ident)*) => {
        mod wait_wake {
            $(#[test]
            fn $name() {
                super::$name::<latchwork::mutex::WaitWake<latchwork::sharing::Shared>>();
            })*
        }
        mod throughput {
            $(#[test]
            fn $name() {
                super::$name::<latchwork::mutex::Throughput<latchwork::sharing::Shared>>();
            })*
        }
    };
}
pub(crate) use with_every_form;
