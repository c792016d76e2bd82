// error[E0133]: call to unsafe function `RegionOptions::trust_any_owner` is unsafe

use latchwork::region::RegionOptions;

fn main() {
    let options = RegionOptions::new().trust_any_owner(true);
    let _ = options.attach("latchwork-of-a-stranger");
}
