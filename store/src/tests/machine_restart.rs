//! Leases of workers elsewhere after a start of the machine of the controller.

use super::*;
use crate::{ElsewhereOrder, Lanes};
use model::{Clock, MachineRun};

const HOUR: u64 = 3600;

/// A machine that was started with this id, and has run for so many seconds.
struct Machine(&'static str, u64);

impl Clock for Machine {
    fn now(&self) -> Time {
        at(0)
    }

    fn machine_run(&self) -> Option<MachineRun> {
        Some(MachineRun { boot: self.0.to_owned(), ran: Duration::from_secs(self.1) })
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test]
async fn a_worker_elsewhere_keeps_the_time_of_its_lease_over_a_start_of_the_controller_with_another_time() {
    for (machine, second, moved) in [
        // It was started again, and nothing says how much time has passed.
        (Some(Machine("second", 60)), HOUR, HOUR - 21),
        (Some(Machine("second", 60)), 5, 0),
        // It runs on since 21 seconds after its start: an hour has passed, or a minute and its clock was set.
        (Some(Machine("first", HOUR)), HOUR, 0),
        (Some(Machine("first", 21 + 60)), HOUR, HOUR - 21 - 60),
        (Some(Machine("first", HOUR)), 5, 0),
        (None, HOUR, 0),
    ] {
        let about = machine.as_ref().map(|machine| (machine.0, machine.1));
        let kit = Kit::new();
        let start = async |second: u64, machine: Option<Machine>| {
            let machine = machine.map(|machine| Arc::new(machine) as Arc<dyn Clock>);
            kit.store.begin_instance(format!("at {second}"), at(second), machine).await.unwrap();
        };
        start(0, Some(Machine("first", 21))).await;
        kit.server("A").await;
        let id = kit.create_run(new_job("A", at(0), None, "x")).await;
        let order = ElsewhereOrder {
            lanes: Lanes::All,
            owner: "worker/rack-7".to_owned(),
            queues: vec!["default".to_owned()],
            limit: 8,
            asked: at(1),
            now: at(1),
            ttl: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        };
        assert_eq!(kit.store.claim_elsewhere(order).await.unwrap().unwrap().len(), 1);
        kit.store.end_instance("at 0".to_owned(), at(21)).await.unwrap();
        start(second, machine).await;
        let run = kit.store.snapshot(id).await.unwrap().unwrap().run;
        assert_eq!(run.lease.unwrap().expires_at, at(61 + moved), "{about:?} at {second}");
        assert_eq!(run.next_run_at, Some(at(71 + moved)), "{about:?} at {second}");
        assert_eq!(kit.store.check_invariants().await.unwrap(), []);
    }
}
