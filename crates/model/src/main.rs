//! t
mod lease;
mod search;
use stateright::*;
use lease::*;
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let u = |i: usize| u8::try_from(a[i]).unwrap();
    let bounds = Bounds { events: a[0], hold: a[1], hands: a[2], steps: if a[10] > 1 { Steps::Merged } else { Steps::Fine }, attempts_max: u(3), faults: lease::state::Faults { crashes: u(4), expiries: u(5), doubts: u(6), unanswered: u(7), operations: u(8) }, counts: a[9] > 0, symmetry: a[10] > 0 };
    if a[10] > 2 {
        let t = std::time::Instant::now();
        let e = search::exhaust(&Lease { bounds, removed: None });
        println!("{e:#?} {:?}", t.elapsed());
        return;
    }
    let t = std::time::Instant::now();
    let c = Lease { bounds, removed: None }.checker().threads(2).spawn_bfs().join();
    println!("{} {} {:?} depth {}", c.unique_state_count(), c.state_count(), t.elapsed(), c.max_depth());
    for p in (Lease { bounds, removed: None }).properties() { println!("{:?} {} {:?}", p.expectation, p.name, c.discovery(p.name).map(|d| d.into_actions().len())); }
    if a.len() > 11 {
        for g in Guard::ALL {
            let c = Lease { bounds: Bounds { symmetry: false, ..bounds }, removed: Some(g) }.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
            let found: Vec<_> = c.discoveries().into_iter().filter(|d| c.model().property(d.0).expectation == Expectation::Always).map(|d| (d.0, d.1.into_actions())).collect();
            println!("{g:?} {} {:?}", c.unique_state_count(), found);
        }
    }
}
