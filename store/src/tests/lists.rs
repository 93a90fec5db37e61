//! Lists of jobs and servers: every filter selects what a naive reading of it selects, in the right order, from an index.

use proptest::prelude::*;

use super::super::{JobCursor, JobFilter, JobIds, JobListOrder, Newest, Present, ServerFilter, overview};
use super::*;
use model::filter::{LabelTest, ServerState, Term, Test};
use model::{Condition, Filter, JobStatus, Subject};

const NOW: u64 = 200_000;
const SERVERS: usize = 4;

/// A server and a run as the generator makes them. Each number is one choice.
#[derive(Clone, Debug)]
struct Machine {
    serial: String,
    labels: BTreeMap<String, String>,
    vendor: Option<&'static str>,
    maintenance: bool,
    restored: bool,
    pending_cleanup: bool,
    seen: bool,
    created: Time,
}

#[derive(Clone, Debug)]
struct Row {
    id: String,
    machine: Option<Machine>,
    workflow: &'static str,
    purpose: &'static str,
    phase: Phase,
    outcome: Option<Outcome>,
    step: Option<&'static str>,
    wait: Option<&'static str>,
    hold: Option<&'static str>,
    failure: Option<(&'static str, &'static str)>,
    lease: Option<u64>,
    epoch: i64,
    cancel: bool,
    restored: bool,
    queued: bool,
    batch: Option<BatchIdText>,
    by: &'static str,
    labels: BTreeMap<String, String>,
    created: Time,
    updated: Time,
}

type BatchIdText = &'static str;
const BATCH: BatchIdText = "01890000-0000-7000-8000-000000000001";

fn pick<T: Clone>(from: &[T], choice: u8) -> T {
    from[usize::from(choice) % from.len()].clone()
}

fn some_labels(choice: u8) -> BTreeMap<String, String> {
    let mut made = BTreeMap::new();
    if let Some(site) = pick(&[None, Some("a"), Some("b")], choice) {
        made.insert("site".to_owned(), site.to_owned());
    }
    if let Some(rack) = pick(&[None, Some("7"), Some("8")], choice / 3) {
        made.insert("rack".to_owned(), rack.to_owned());
    }
    made
}

fn machine(index: usize, c: [u8; 6]) -> Machine {
    Machine {
        serial: format!("{}-{index}", pick(&["SH", "XF"], c[0])),
        labels: some_labels(c[1]),
        vendor: pick(&[None, Some("dell"), Some("Hpe")], c[2]),
        maintenance: c[3].is_multiple_of(3),
        restored: c[3].is_multiple_of(5),
        pending_cleanup: c[4].is_multiple_of(3),
        seen: c[4].is_multiple_of(2),
        created: at(u64::from(c[5]) * 100),
    }
}

fn row(index: usize, c: [u8; 16], machines: &[Machine]) -> Row {
    let phases = [
        Phase::Queued,
        Phase::Running,
        Phase::Waiting,
        Phase::Held,
        Phase::Unwinding,
        Phase::Finishing,
        Phase::Ended,
    ];
    let phase = pick(&phases, c[0]);
    let ended = phase == Phase::Ended;
    let outcome = match phase {
        Phase::Ended | Phase::Unwinding | Phase::Finishing => {
            Some(pick(&[Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled], c[1]))
        }
        _ => None,
    };
    let failed = outcome.is_some_and(|outcome| outcome != Outcome::Succeeded);
    let wait = match phase {
        Phase::Waiting => Some(pick(&["report", "retry", "off"], c[2])),
        _ => None,
    };
    let mut choices = machines.iter().cloned().map(Some).collect::<Vec<_>>();
    choices.push(None);
    let machine = pick(&choices, c[3]);
    Row {
        id: Uuid::from_u128(
            0x0189_0000_0000_7000_8000_0000_0000_0000 + (u128::from(c[4]) << 16) + index as u128,
        )
        .to_string(),
        restored: !ended && machine.as_ref().is_some_and(|machine| machine.restored),
        machine,
        workflow: pick(&[PROVISION, "diagnostics"], c[5]),
        purpose: pick(&["change", "observe"], c[5] / 2),
        phase,
        outcome,
        step: if ended { None } else { pick(&[None, Some("a.on"), Some("b.off")], c[6]) },
        wait,
        hold: (phase == Phase::Held).then(|| pick(&["operator", "certificate"], c[7])),
        failure: failed.then(|| pick(&[("media", "a.on"), ("bmc", "b.off")], c[8])),
        lease: (phase == Phase::Running).then(|| pick(&[NOW - 5, NOW + 5], c[9])),
        epoch: if phase == Phase::Queued { 0 } else { i64::from(c[9] % 2) },
        cancel: !ended && c[10].is_multiple_of(3),
        queued: !ended && c[10] % 4 == 1,
        batch: pick(&[None, Some(BATCH)], c[11]),
        by: pick(&["ann", "bob"], c[12]),
        labels: some_labels(c[13]),
        created: at(u64::from(c[14] % 8) * 1000),
        updated: at(NOW - u64::from(c[15]) * 700),
    }
}

impl Row {
    /// The condition as the table in `explain` says it.
    fn condition(&self, present: Present, drained: bool) -> Condition {
        let forward = matches!(self.phase, Phase::Queued | Phase::Running | Phase::Waiting | Phase::Held);
        let maintained = self.machine.as_ref().is_some_and(|machine| machine.maintenance);
        let gated = drained || present.pressure || maintained && self.purpose == "change";
        match self {
            Row { phase: Phase::Ended, .. } => Condition::Ended,
            Row { restored: true, .. } => Condition::Restored,
            Row { hold: Some(_), .. } => Condition::Held,
            Row { lease: Some(until), .. } if at(*until) <= present.now => Condition::Abandoned,
            Row { lease: Some(_), cancel: true, .. } if forward => Condition::Cancelling,
            Row { lease: Some(_), .. } => Condition::Working,
            Row { wait: Some("retry"), .. } => Condition::Retrying,
            Row { wait: Some(_), .. } => Condition::Waiting,
            Row { epoch: 0, .. } if forward && gated => Condition::Gated,
            Row { queued: true, .. } => Condition::Blocked,
            Row { phase: Phase::Queued, .. } => Condition::Queued,
            _ => Condition::Due,
        }
    }

    fn is_open(&self) -> bool {
        self.phase != Phase::Ended
    }

    fn has(&self, term: &Term, rows: &[Row], present: Present, drained: bool) -> bool {
        let listed = |list: &[String], value: Option<&str>| {
            value.is_some_and(|value| list.iter().any(|listed| listed == value))
        };
        let open = |value: Option<&'static str>| value.filter(|_| self.is_open());
        let holds = match &term.test {
            Test::Condition(list) => list.contains(&self.condition(present, drained)),
            Test::Status(list) => list.contains(&JobStatus::of(self.workflow, self.phase, self.outcome)),
            Test::Outcome(list) => self.outcome.is_some_and(|outcome| list.contains(&outcome)),
            Test::OpenFailure => !self.is_open() && rank(self, rows, present) == 1,
            Test::Class(list) => listed(list, self.failure.map(|(class, _)| class)),
            Test::FailedStep(list) => listed(list, self.failure.map(|(_, step)| step)),
            Test::Step(list) => listed(list, open(self.step)),
            Test::Wait(list) => listed(list, open(self.wait)),
            Test::Hold(list) => listed(list, open(self.hold)),
            Test::Serial(list) => self
                .machine
                .as_ref()
                .is_some_and(|machine| list.iter().any(|glob| globbed(glob.as_str(), &machine.serial))),
            Test::Label(list) => list.iter().any(|label| {
                labelled(label, &self.labels)
                    || self.machine.as_ref().is_some_and(|machine| labelled(label, &machine.labels))
            }),
            Test::Workflow(list) => listed(list, Some(self.workflow)),
            Test::Batch(list) => list.iter().any(|batch| Some(&*batch.to_string()) == self.batch),
            Test::By(list) => listed(list, Some(self.by)),
            Test::Since(time) => self.created >= *time,
            Test::Until(time) => self.created < *time,
            Test::Text(text) => {
                self.texts().iter().any(|own| own.to_ascii_lowercase().contains(&text.to_ascii_lowercase()))
            }
            Test::Vendor(_) | Test::State(_) => unreachable!("no key of jobs"),
        };
        holds != term.negated
    }

    fn texts(&self) -> Vec<String> {
        let mut texts = vec![self.id.clone(), self.workflow.to_owned(), self.by.to_owned()];
        texts.extend(self.machine.as_ref().map(|machine| machine.serial.clone()));
        texts.extend(self.failure.map(|(class, _)| format!("Lost {class}")));
        texts.extend(self.wait.map(|reason| format!("Since {reason}")));
        texts.extend(self.hold.map(|class| format!("Decide {class}")));
        texts
    }
}

impl Machine {
    fn has(&self, term: &Term, rows: &[Row], present: Present, drained: bool) -> bool {
        let own = || {
            rows.iter().filter(|row| {
                row.is_open() && row.machine.as_ref().is_some_and(|machine| machine.serial == self.serial)
            })
        };
        let holds = match &term.test {
            Test::State(list) => list.iter().any(|state| match state {
                ServerState::Free => own().next().is_none() && !self.maintenance && !self.restored,
                ServerState::Busy => own().next().is_some(),
                ServerState::Maintenance => self.maintenance,
                ServerState::Restored => self.restored,
                ServerState::PendingCleanup => self.pending_cleanup,
                ServerState::Unseen => !self.seen,
            }),
            Test::Serial(list) => list.iter().any(|glob| globbed(glob.as_str(), &self.serial)),
            Test::Label(list) => list.iter().any(|label| labelled(label, &self.labels)),
            Test::Vendor(list) => {
                self.vendor.is_some_and(|vendor| list.iter().any(|listed| listed == vendor))
            }
            Test::Since(time) => self.created >= *time,
            Test::Until(time) => self.created < *time,
            Test::Text(text) => {
                let labels = serde_json::to_string(&self.labels).unwrap();
                let texts = [&*self.serial, "https://10.0.0.1", self.vendor.unwrap_or_default(), &labels];
                texts.iter().any(|own| own.to_ascii_lowercase().contains(&text.to_ascii_lowercase()))
            }
            _ => own().any(|row| {
                row.has(&Term { negated: false, test: term.test.clone() }, rows, present, drained)
            }),
        };
        holds != term.negated
    }
}

fn labelled(label: &LabelTest, labels: &BTreeMap<String, String>) -> bool {
    labels.get(&label.key).is_some_and(|own| label.value.as_ref().is_none_or(|value| value == own))
}

/// The pattern by its definition, one character after the other.
fn globbed(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => globbed(&pattern[1..], text) || !text.is_empty() && globbed(pattern, &text[1..]),
        (Some('?'), Some(_)) => globbed(&pattern[1..], &text[1..]),
        (Some(one), Some(other)) if one == other => globbed(&pattern[1..], &text[1..]),
        _ => false,
    }
}

/// Writes the rows as another connection, with the triggers of the schema.
fn fill(connection: &Connection, machines: &[Machine], rows: &[Row], drained: bool) {
    for machine in machines {
        let json = |on: bool| on.then(|| "{}".to_owned());
        connection
            .execute(
                "INSERT INTO servers (serial, id, bmc_address, bmc_username, bmc_password, vendor, labels, maintenance, restored,
                                      last_seen, created_at, updated_at)
                 VALUES (?1, ?8, 'https://10.0.0.1', 'u', 'env:P', ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
                rusqlite::params![
                    machine.serial,
                    machine.vendor,
                    serde_json::to_string(&machine.labels).unwrap(),
                    machine.maintenance.then(|| json!(model::GateClosure {
                        since: at(0),
                        by: "ann".to_owned(),
                        reason: String::new()
                    })
                    .to_string()),
                    machine.restored.then(|| json!({ "since": at(0), "as_of": at(0), "reason": "copy" }).to_string()),
                    machine.seen.then(|| at(1).to_string()),
                    machine.created.to_string(),
                    Uuid::new_v5(&Uuid::NAMESPACE_DNS, machine.serial.as_bytes()).to_string()
                ],
            )
            .unwrap();
        let pending =
            PendingCleanup { job_id: RunId::new(), remaining: vec![], slots: vec![], unknown: None };
        connection
            .execute(
                "INSERT INTO server_observed (serial, pending_cleanup) VALUES (?1, ?2)",
                rusqlite::params![
                    machine.serial,
                    json(machine.pending_cleanup).map(|_| json!(pending).to_string())
                ],
            )
            .unwrap();
    }
    for row in rows {
        let failure = row.failure.map(|(class, step)| {
            json!({ "class": class, "step": step, "summary": format!("Lost {class}"), "next_action": "x" }).to_string()
        });
        let wait = row.wait.map(|reason| {
            json!({ "reason": reason, "step": "a.on", "since": at(0), "deadline": at(9), "detail": format!("Since {reason}") })
                .to_string()
        });
        let hold = row.hold.map(|class| {
            json!({ "class": class, "since": at(0), "remind_at": at(9), "verbs": [], "detail": format!("Decide {class}") })
                .to_string()
        });
        connection
            .execute(
                "INSERT INTO runs (id, workflow, workflow_version, server, root, purpose, phase, outcome, step, wait, hold,
                     failure_class, failure, queue, priority, batch, restored, next_run_at, deadline_at, progress_at, lease_owner,
                     lease_expires_at, lease_epoch, created_by, created_at, updated_at)
                 VALUES (?1, ?2, 1, ?3, ?1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'q', 0, ?12, ?13, ?14, ?14, ?14, ?15, ?16, ?17,
                         ?18, ?19, ?20)",
                rusqlite::params![
                    row.id,
                    row.workflow,
                    row.machine.as_ref().map(|machine| machine.serial.clone()),
                    row.purpose,
                    row.phase.as_str(),
                    row.outcome.map(Outcome::as_str),
                    row.step,
                    wait,
                    hold,
                    row.failure.map(|(class, _)| class),
                    failure,
                    row.batch.unwrap_or_default(),
                    row.restored,
                    at(NOW).to_string(),
                    row.lease.map(|_| "w"),
                    row.lease.map(|until| at(until).to_string()),
                    row.epoch,
                    row.by,
                    row.created.to_string(),
                    row.updated.to_string()
                ],
            )
            .unwrap();
        connection
            .execute(
                "INSERT INTO run_inputs (run, input, plan, labels) VALUES (?1, '{}', '{}', ?2)",
                [&row.id, &serde_json::to_string(&row.labels).unwrap()],
            )
            .unwrap();
        if row.cancel {
            let sql = "INSERT INTO signals (run, name, key, payload, received_at) VALUES (?1, 'verb.cancel', '', '{}', ?2)";
            connection.execute(sql, [&row.id, &at(0).to_string()]).unwrap();
        }
        if row.queued {
            let sql = "INSERT INTO locks (resource, root, held, priority, since) VALUES ('r', ?1, 0, 0, ?2)";
            connection.execute(sql, [&row.id, &at(0).to_string()]).unwrap();
        }
    }
    if drained {
        let sql = "INSERT INTO settings (key, value) VALUES ('drain', ?1)";
        let closed = json!({ "since": at(0), "by": "ann", "reason": "" }).to_string();
        connection.execute(sql, [closed]).unwrap();
    }
}

const OF_JOBS: &[&str] = &[
    "condition:held,waiting",
    "condition:ended",
    "condition:blocked,gated,due",
    "condition:abandoned,cancelling",
    "condition:cancelling",
    "condition:working",
    "condition:restored,retrying,queued,ended",
    "status:complete,queued",
    "status:provisioning,running",
    "status:failed,succeeded",
    "outcome:failed",
    "outcome:succeeded,cancelled",
    "failure:open",
    "class:media",
    "failed_step:b.off",
    "step:a.on",
    "wait:report,retry",
    "hold:operator",
    "workflow:diagnostics",
    "batch:01890000-0000-7000-8000-000000000001",
    "by:ann",
    "lost",
    "\"since RE\"",
    "decide",
    "xf-",
];
const OF_SERVERS: &[&str] = &[
    "state:free",
    "state:busy,pending-cleanup",
    "state:maintenance,restored",
    "state:unseen",
    "vendor:dell",
    "10.0.0",
    "hPe",
    "condition:held,waiting",
    "condition:gated,ended",
    "step:a.on",
    "wait:report",
];
const OF_BOTH: &[&str] = &[
    "site=a",
    "rack!=7",
    "label:rack",
    "label:site=a,rack=8",
    "serial:SH-*",
    "serial:*-1,XF-2",
    "serial:XF-0",
    "serial:?H-?",
    "since:2026-01-01T00:50:00Z",
    "until:2026-01-01T01:30:00Z",
];

fn filter_text(own: &[&str], choices: &[(u8, bool)]) -> String {
    let all: Vec<&str> = own.iter().chain(OF_BOTH).copied().collect();
    let word = |(choice, negated): &(u8, bool)| {
        format!("{}{}", if *negated { "-" } else { "" }, pick(&all, *choice))
    };
    choices.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Whether the server of a row has a newer one that counts. The rows are written in their order.
fn newer(row: &Row, rows: &[Row], counts: impl Fn(&Row) -> bool) -> bool {
    let mut behind = rows.iter().skip_while(|other| other.id != row.id).skip(1);
    behind.any(|other| {
        let server = |row: &Row| row.machine.as_ref().map(|machine| machine.serial.clone());
        server(row).is_some() && server(other) == server(row) && counts(other)
    })
}

/// The rank in the order "needs a person first", by its definition.
fn rank(row: &Row, rows: &[Row], present: Present) -> u8 {
    let newer = newer(row, rows, |_| true);
    let day_ago = present.now.minus(Duration::from_secs(86_400));
    match row {
        row if row.is_open() && (row.hold.is_some() || row.restored) => 0,
        row if row.outcome == Some(Outcome::Failed) && row.updated >= day_ago && !newer => 1,
        row if row.is_open() => 2,
        _ => 3,
    }
}

async fn pages(store: &Store, filter: &JobFilter) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None::<JobCursor>);
    loop {
        let page = store.jobs(JobFilter { after, ..filter.clone() }).await.unwrap();
        assert!(page.jobs.len() <= filter.limit as usize);
        found.extend(page.jobs.iter().map(|job| job.run.id.to_string()));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_has_the_rows_that_a_naive_filter_selects(
        machines in proptest::collection::vec(any::<[u8; 6]>(), SERVERS),
        rows in proptest::collection::vec(any::<[u8; 16]>(), 0..24),
        filters in proptest::collection::vec(
            (proptest::collection::vec((any::<u8>(), any::<bool>()), 0..4), 1_u32..7, any::<bool>()), 12),
        (drained, pressure) in (any::<bool>(), any::<bool>()),
    ) {
        let machines: Vec<Machine> = machines.into_iter().enumerate().map(|(index, c)| machine(index, c)).collect();
        let rows: Vec<Row> = rows.into_iter().enumerate().map(|(index, c)| row(index, c, &machines)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kit = Kit::new();
        fill(&kit.outside(), &machines, &rows, drained);
        let present = Present { now: at(NOW), pressure };
        let overview = runtime.block_on(kit.store.overview(present)).unwrap();
        for group in &overview.failures {
            // The filter of the link beside the number of the group, which lists all causes of one class at one step.
            let alike = overview.failures.iter().filter(|other| (&other.class, &other.step) == (&group.class, &group.step));
            let jobs: u64 = alike.map(|other| other.jobs).sum();
            let text = format!("failure:open class:{} failed_step:{}", group.class, group.step);
            let filter = Filter::parse(Subject::Jobs, &text, present.now).unwrap();
            let listed = JobFilter { filter, present: Some(present), limit: 50, ..JobFilter::default() };
            let found = runtime.block_on(kit.store.job_ids(listed)).unwrap();
            prop_assert_eq!(found.count, jobs, "{}", text);
            prop_assert!(found.ids.contains(&group.newest));
        }
        let open = rows.iter().filter(|row| !row.is_open() && rank(row, &rows, present) == 1).count();
        prop_assert_eq!(overview.failures.iter().map(|group| group.jobs).sum::<u64>(), open as u64);
        for (choices, limit, attention) in &filters {
            let text = filter_text(OF_JOBS, choices);
            let filter = Filter::parse(Subject::Jobs, &text, present.now).unwrap();
            let mut expected: Vec<&Row> = rows
                .iter()
                .filter(|row| filter.terms().iter().all(|term| row.has(term, &rows, present, drained)))
                .collect();
            let order = if *attention { JobListOrder::Attention } else { JobListOrder::Newest };
            let ranked = |row: &Row| if *attention { rank(row, &rows, present) } else { 0 };
            expected.sort_by(|a, b| {
                ranked(a).cmp(&ranked(b)).then((b.created, &b.id).cmp(&(a.created, &a.id)))
            });
            let expected: Vec<String> = expected.iter().map(|row| row.id.clone()).collect();
            let wanted =
                JobFilter { filter, order, present: Some(present), limit: *limit, ..JobFilter::default() };
            let found = runtime.block_on(pages(&kit.store, &wanted));
            prop_assert_eq!(&found, &expected, "{} in order {:?}", text, order);
            let JobIds { ids, count, superseded } = runtime.block_on(kit.store.job_ids(wanted.clone())).unwrap();
            prop_assert_eq!(superseded, 0);
            prop_assert_eq!(count, expected.len() as u64);
            prop_assert_eq!(ids.len(), expected.len().min(*limit as usize));
            let newest = expected.iter().filter(|id| {
                let row = rows.iter().find(|row| row.id == **id).unwrap();
                !newer(row, &rows, |other| other.workflow == PROVISION)
            });
            let newest = newest.count() as u64;
            let wanted = JobFilter { newest: Some(Newest::default()), ..wanted };
            let found = runtime.block_on(kit.store.job_ids(wanted)).unwrap();
            prop_assert_eq!((found.count, found.superseded), (newest, expected.len() as u64 - newest));

            let text = filter_text(OF_SERVERS, choices);
            let filter = Filter::parse(Subject::Servers, &text, present.now).unwrap();
            let mut expected: Vec<String> = machines
                .iter()
                .filter(|machine| filter.terms().iter().all(|term| machine.has(term, &rows, present, drained)))
                .map(|machine| machine.serial.clone())
                .collect();
            expected.sort();
            let wanted = ServerFilter { filter, present: Some(present), limit: 9, ..ServerFilter::default() };
            let found = runtime.block_on(kit.store.filtered_servers(wanted.clone())).unwrap();
            let found: Vec<String> = found.iter().map(|server| server.serial.to_string()).collect();
            prop_assert_eq!(&found, &expected, "{}", text);
            let (serials, count) = runtime.block_on(kit.store.server_serials(wanted)).unwrap();
            prop_assert_eq!((serials.len(), count), (expected.len(), expected.len() as u64));
        }
    }
}

/// The plan of the first page of a filter.
fn plan(connection: &Connection, filter: &JobFilter, rank: u8) -> Vec<String> {
    let page = filter.page(rank, "runs.id, runs.phase", "runs", 51);
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", page.sql)).unwrap();
    let rows =
        explained.query_map(rusqlite::params_from_iter(page.values), |row| row.get::<_, String>("detail"));
    rows.unwrap().map(Result::unwrap).collect()
}

/// A regression guard: the overview is computed at every event, so it reads the index of the open runs and not all that have ended.
#[test]
fn the_overview_reads_racks_stopped_batches_and_pending_cleanup_by_their_indexes() {
    let kit = Kit::new();
    let outside = kit.outside();
    for (sql, table, index) in [
        (overview::racks_sql(), " runs", "idx_runs_open"),
        (overview::stopped_sql(), " runs", "idx_runs_open"),
        (overview::cleanup_sql(), " server_observed", "idx_server_observed_pending_cleanup"),
    ] {
        let mut explained = outside.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = explained.query_map([], |row| row.get::<_, String>("detail"));
        let lines: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
        let first = lines.iter().find(|line| line.contains(table)).unwrap();
        assert!(first.contains(index), "{lines:#?}");
    }
}

/// A regression guard: a list of open, failed or labelled jobs reads the index of these, not the jobs that have ended.
#[test]
fn a_list_reads_the_index_of_its_filter() {
    let kit = Kit::new();
    let outside = kit.outside();
    let expected = [
        ("", "idx_runs_created"),
        ("since:2h", "idx_runs_created"),
        ("condition:waiting", "idx_runs_open"),
        ("-condition:ended", "idx_runs_open"),
        ("status:queued", "idx_runs_open"),
        ("step:a", "idx_runs_open"),
        ("wait:report", "idx_runs_open"),
        ("hold:operator", "idx_runs_open"),
        ("outcome:failed", "idx_runs_outcome"),
        ("failure:open", "idx_runs_ended"),
        ("class:media", "idx_runs_failure_class"),
        ("class:media failed_step:a", "idx_runs_failure_class"),
        ("batch:01890000-0000-7000-8000-000000000001", "idx_runs_batch"),
        ("serial:SH-1", "idx_runs_server"),
        ("site=a", "run_labels"),
    ];
    for (text, index) in expected {
        let filter = Filter::parse(Subject::Jobs, text, at(NOW)).unwrap();
        let filter = JobFilter { filter, ..JobFilter::default() };
        let plan = plan(&outside, &filter, 0);
        let runs = |line: &&String| line.contains("SCAN runs") || line.contains("SEARCH runs");
        let outer = plan.iter().find(runs).unwrap();
        let by_id = outer.contains("SEARCH runs USING INDEX sqlite_autoindex_runs_1 (id=?)");
        let reads = if index == "idx_runs_ended" {
            by_id
                && plan
                    .iter()
                    .any(|line| line.contains("SEARCH ended USING INDEX idx_runs_ended (updated_at>?)"))
        } else if index == "run_labels" {
            by_id
                && plan.iter().any(|line| line.contains("SEARCH run_labels USING PRIMARY KEY"))
                && plan.iter().any(|line| line.contains("SEARCH server_labels USING PRIMARY KEY"))
        } else {
            outer.contains(&format!("{index} ")) || outer.ends_with(index)
        };
        assert!(reads, "{text} should read {index}: {plan:#?}");
        // An order that the index has is not sorted again.
        let sorts = plan.iter().any(|line| line.contains("USE TEMP B-TREE FOR ORDER BY"));
        let sorted = ["idx_runs_created", "idx_runs_open", "idx_runs_outcome", "idx_runs_failure_class"];
        assert!(!(sorts && sorted.contains(&index) && !text.contains("failed_step")), "{text}: {plan:#?}");
    }
    let attention = JobFilter { order: JobListOrder::Attention, ..JobFilter::default() };
    let of_rank = |rank| plan(&outside, &attention, rank);
    for (rank, index) in
        [(0, "idx_runs_open"), (1, "idx_runs_outcome"), (2, "idx_runs_open"), (3, "idx_runs_created")]
    {
        let plan = of_rank(rank);
        assert!(
            plan.iter().any(|line| line.contains("runs USING") && line.contains(index)),
            "{rank}: {plan:#?}"
        );
        assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{rank}: {plan:#?}");
    }
}

#[tokio::test]
async fn labels_of_a_server_are_found_after_they_changed() {
    let kit = Kit::new();
    kit.server("A").await;
    let with = |text: &str| {
        let filter = Filter::parse(Subject::Servers, text, at(0)).unwrap();
        let (store, filter) =
            (kit.store.clone(), ServerFilter { filter, limit: 9, ..ServerFilter::default() });
        async move { store.filtered_servers(filter).await.unwrap().len() }
    };
    assert_eq!((with("rack=7").await, with("rack=8").await), (1, 0));
    let changed = Server { labels: labels(&[("rack", "8")]), ..server("A") };
    kit.store
        .update_server(changed, crate::CertificateChange::Keep, NewEvent::info("server.updated", "x"), None)
        .await
        .unwrap();
    assert_eq!((with("rack=7").await, with("rack=8").await), (0, 1));
    kit.store.delete_server(&serial("A"), &[], NewEvent::info("server.deleted", "x"), at(1)).await.unwrap();
    let left: i64 =
        kit.outside().query_row("SELECT count(*) FROM server_labels", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

/// Measures lists with 10,000 jobs. Run with `-- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_lists_of_ten_thousand_jobs() {
    let kit = Kit::new();
    let choices = |seed: u32| {
        let digest = <sha2::Sha256 as sha2::Digest>::digest(seed.to_be_bytes());
        std::array::from_fn::<u8, 16, _>(|index| digest[index])
    };
    let machines: Vec<Machine> = (0..2000)
        .map(|index| machine(index, choices(u32::try_from(index).unwrap())[..6].try_into().unwrap()))
        .collect();
    // One job in fifty has not ended, as in a room that works.
    let rows: Vec<Row> = (0..10_000)
        .map(|index| {
            let mut c = choices(100_000 + u32::try_from(index).unwrap());
            c[0] = if index % 50 == 0 { c[0] % 7 } else { 6 };
            let mut row = row(index, c, &machines[index % 1990..index % 1990 + 10]);
            row.created = at(index as u64 * 10);
            row
        })
        .collect();
    let outside = kit.outside();
    outside.execute_batch("BEGIN").unwrap();
    fill(&outside, &machines, &rows, false);
    outside.execute_batch("COMMIT").unwrap();
    let present = Present { now: at(NOW), pressure: false };
    let texts = [
        "",
        "condition:waiting",
        "outcome:failed",
        "class:media failed_step:a.on",
        "site=a",
        "site=a rack!=7",
        "step:a.on -condition:held",
        "since:2026-01-02T00:00:00Z",
        "lost",
        "nothing-has-this-text",
    ];
    for order in [JobListOrder::Newest, JobListOrder::Attention] {
        for text in texts {
            let filter = Filter::parse(Subject::Jobs, text, present.now).unwrap();
            let filter =
                JobFilter { filter, order, present: Some(present), limit: 50, ..JobFilter::default() };
            kit.store.jobs(filter.clone()).await.unwrap();
            let begun = std::time::Instant::now();
            let page = kit.store.jobs(filter).await.unwrap();
            println!("{order:?} {text:40} {:3} jobs  {:?}", page.jobs.len(), begun.elapsed());
        }
    }
}
