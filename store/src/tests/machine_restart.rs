//! Leases of workers elsewhere after a start of the machine of the controller.

use super::*;
use crate::{ElsewhereOrder, Lanes};
use model::{Clock, MachineRun};

const HOUR: u64 = 3600;

/// A machine that was started with this id.
struct Machine(&'static str);

impl Clock for Machine {
    fn now(&self) -> Time {
        at(0)
    }

    fn machine_run(&self) -> Option<MachineRun> {
        Some(MachineRun { boot: self.0.to_owned(), ran: Duration::from_secs(60) })
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test]
async fn a_worker_elsewhere_keeps_the_time_of_its_lease_over_a_start_of_the_machine_of_the_controller() {
    for (boot, second, moved) in [
        (Some("second"), HOUR, HOUR - 21),
        // The machine runs on, or it is not known whether it does.
        (Some("first"), HOUR, 0),
        (None, HOUR, 0),
        // Its clock was set back.
        (Some("second"), 5, 0),
    ] {
        let kit = Kit::new();
        let start = async |second: u64, boot: Option<&'static str>| {
            let machine = boot.map(|boot| Arc::new(Machine(boot)) as Arc<dyn Clock>);
            kit.store.begin_instance(format!("at {second}"), at(second), machine).await.unwrap();
        };
        start(0, Some("first")).await;
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
        start(second, boot).await;
        let run = kit.store.snapshot(id).await.unwrap().unwrap().run;
        assert_eq!(run.lease.unwrap().expires_at, at(61 + moved), "{boot:?} at {second}");
        assert_eq!(run.next_run_at, Some(at(71 + moved)), "{boot:?} at {second}");
        assert_eq!(kit.store.check_invariants().await.unwrap(), []);
    }
}
