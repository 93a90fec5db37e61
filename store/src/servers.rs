//! Registered servers, and observations of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, params};
use serde_json::{Map, Value as Json};

use super::filters::{self, Present, Sql};
use super::rows::{Columns, ReadSnapshot, all, append_events, execute, first, to_json};
use super::shared_bmc::share_bmc;
use super::{Store, StoreError};
use model::{Filter, NewEvent, PendingCleanup, RunId, Serial, Server, Time, TlsMode};

const COLUMNS: &str = "servers.serial, servers.id, bmc_address, bmc_username, bmc_password, vendor, last_seen, labels, \
    tls, tls_fingerprint, allow_unverified_serial, media_base_url, bmc_profile, quirks, network, revision, created_at, \
     updated_at, observed, learned, pending_cleanup, maintenance, restored \
     FROM servers LEFT JOIN server_observed ON server_observed.serial = servers.serial";

/// A filter for a list of servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFilter {
    /// Only servers that satisfy this filter.
    pub filter: Filter,
    /// Only servers with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// The present time and shortages, on which conditions of jobs depend.
    pub present: Option<Present>,
    /// The maximum of servers to return.
    pub limit: u32,
    /// Only servers behind this one in the order of the list.
    pub after: Option<Serial>,
}

impl ServerFilter {
    /// The SQL condition, with its parameters in order.
    pub(super) fn conditions(&self) -> Sql {
        let epoch = Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH);
        let present = self.present.unwrap_or(Present { now: epoch, pressure: false });
        let mut all = Sql::new("servers.serial > ?");
        all.values.push(Value::Text(self.after.as_ref().map_or("", Serial::as_str).to_owned()));
        for term in self.filter.terms() {
            let Sql { text, values } = filters::of_server(term, present);
            all.text = format!("{} AND {text}", all.text);
            all.values.extend(values);
        }
        for (key, value) in &self.labels {
            all.text.push_str(
                " AND servers.serial IN (SELECT serial FROM server_labels WHERE key = ? AND value = ?)",
            );
            all.values.extend([Value::Text(key.clone()), Value::Text(value.clone())]);
        }
        all
    }
}

/// The parts of a server's record that the order of a run uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerResources {
    /// The label `site` of the server.
    pub site: Option<String>,
    /// The address of its BMC, when other servers have the same address.
    pub shared_bmc: Option<String>,
    /// The network of the machine, for recipes that have none.
    pub network: Option<Json>,
}

/// The result of a registration.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerChange {
    /// The server was registered.
    Created(Box<Server>),
    /// A server with this serial number exists; nothing was written.
    Exists(Box<Server>),
}

/// What an update does with the certificate of a BMC. The first contact pins one without a new revision of the server, so an update
/// says whether it depends on the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateChange {
    /// The update leaves the certificate that is stored.
    Keep,
    /// The update writes the certificate of its server, if the stored one is still the one that its caller has read.
    Replace {
        /// The fingerprint that the caller has read.
        from: Option<String>,
    },
}

/// The result of an update.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdatedServer {
    /// Written; the server after the update.
    Updated(Box<Server>),
    /// The server has another revision than the update, or the update replaces another certificate than the stored one; nothing
    /// was written.
    Moved(Box<Server>),
    /// This run uses the BMC whose address or certificate would change; nothing was written.
    Busy(RunId),
    /// There is no such server.
    Unknown,
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedServer {
    /// The server was deleted.
    Deleted,
    /// There is no such server.
    Unknown,
    /// The server has this number of runs; nothing was deleted.
    HasJobs(u64),
}

impl Store {
    /// The server with this serial number.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn server(&self, serial: &Serial) -> Result<Option<Server>, StoreError> {
        let ticket = match self.in_place() {
            // A simulation decides about each read.
            Some(_) => None,
            None => match self.writer.cache().server(serial) {
                Ok(server) => return Ok(Some(Server::clone(&server))),
                Err(ticket) => Some(ticket),
            },
        };
        let serial = serial.clone();
        let found = self.read("read a server", move |connection| find(connection, &serial)).await?;
        if let (Some(ticket), Some(server)) = (ticket, &found) {
            ticket.put(Arc::new(server.clone()));
        }
        Ok(found)
    }

    /// The record of a server that is named by its serial number, or else by the id of its record.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn server_or_id(&self, name: &Serial) -> Result<Option<Server>, StoreError> {
        const OPERATION: &str = "read a server by serial number or id";
        let name = name.clone();
        self.read(OPERATION, move |connection| {
            if let Some(found) = find(connection, &name)? {
                return Ok(Some(found));
            }
            let Ok(id) = name.as_str().parse::<uuid::Uuid>() else { return Ok(None) };
            let sql = format!("SELECT {COLUMNS} WHERE servers.id = ?1");
            first(connection, OPERATION, &sql, &[&id.to_string()], server)
        })
        .await
    }

    /// One page of servers, in the order of their serial numbers.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn servers(&self, after: Option<Serial>, limit: u32) -> Result<Vec<Server>, StoreError> {
        self.filtered_servers(ServerFilter { after, limit, ..ServerFilter::default() }).await
    }

    /// One page of the servers that satisfy a filter, in the order of their serial numbers.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn filtered_servers(&self, filter: ServerFilter) -> Result<Vec<Server>, StoreError> {
        const OPERATION: &str = "list servers";
        self.read(OPERATION, move |connection| {
            let Sql { text, mut values } = filter.conditions();
            values.push(Value::Integer(i64::from(filter.limit)));
            let sql = format!("SELECT {COLUMNS} WHERE {text} ORDER BY servers.serial LIMIT ?");
            let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            all(connection, OPERATION, &sql, &values, server)
        })
        .await
    }

    /// The serial numbers of the servers that satisfy a filter, at most `filter.limit`, and the number of all of them. Both are
    /// of one point in time.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn server_serials(&self, filter: ServerFilter) -> Result<(Vec<Serial>, u64), StoreError> {
        const OPERATION: &str = "find the servers of a filter";
        self.read(OPERATION, move |connection| {
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            let Sql { text, mut values } = ServerFilter { after: None, ..filter.clone() }.conditions();
            let bound: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            let sql = format!("SELECT count(*) AS servers FROM servers WHERE {text}");
            let count = first(connection, OPERATION, &sql, &bound, |columns| columns.count("servers"))?;
            values.push(Value::Integer(i64::from(filter.limit)));
            let bound: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
            let sql = format!("SELECT serial FROM servers WHERE {text} ORDER BY servers.serial LIMIT ?");
            let serials =
                all(connection, OPERATION, &sql, &bound, |columns| columns.parse("serial", str::parse))?;
            Ok((serials, count.unwrap_or(0)))
        })
        .await
    }

    /// The shared resources of servers: the site and the BMC.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn resources_of(
        &self,
        serials: Vec<Serial>,
    ) -> Result<HashMap<Serial, ServerResources>, StoreError> {
        const OPERATION: &str = "read what orders take from servers";
        self.read(OPERATION, move |connection| {
            let found = all(
                connection,
                OPERATION,
                "SELECT servers.serial, network, json_extract(labels, '$.site') AS site,
                     CASE WHEN EXISTS (SELECT 1 FROM servers AS other
                                       WHERE other.bmc_address = servers.bmc_address AND other.serial <> servers.serial)
                          THEN bmc_address END AS shared_bmc
                 FROM json_each(?1) AS asked JOIN servers ON servers.serial = asked.value",
                &[&to_json(OPERATION, &serials)?],
                |columns| {
                    let serial: Serial = columns.parse("serial", str::parse)?;
                    let (site, shared_bmc) = (columns.get("site")?, columns.get("shared_bmc")?);
                    let network = columns.json_opt("network")?;
                    Ok((serial, ServerResources { site, shared_bmc, network }))
                },
            )?;
            Ok(found.into_iter().collect())
        })
        .await
    }

    /// Registers a server.
    ///
    /// # Errors
    /// When the database cannot be written; the server is not registered then. A registered serial number is no error.
    pub async fn create_server(&self, new: Server, event: NewEvent) -> Result<ServerChange, StoreError> {
        self.writer.write("register a server", move |connection| create(connection, &new, event)).await
    }

    /// Registers servers in one transaction. Each is registered or left as it is on its own, in their order. All are durable when
    /// this returns.
    ///
    /// # Errors
    /// When the database cannot be written; no server is registered then.
    pub async fn create_servers(
        &self,
        new: Vec<(Server, NewEvent)>,
    ) -> Result<Vec<ServerChange>, StoreError> {
        self.writer
            .write("register servers", move |connection| {
                new.into_iter().map(|(server, event)| create(connection, &server, event)).collect()
            })
            .await
    }

    /// The registered servers among these serial numbers.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn servers_of(&self, serials: Vec<Serial>) -> Result<HashMap<Serial, Server>, StoreError> {
        self.read("read servers", move |connection| {
            let mut found = HashMap::new();
            for serial in serials {
                if let Some(server) = find(connection, &serial)? {
                    found.insert(serial, server);
                }
            }
            Ok(found)
        })
        .await
    }

    /// Replaces the columns that an operator may change, if the server still has the revision of `new`. The address and the
    /// certificate of a BMC are left as they are while a run uses it, except the run `waiting`, which waits for this change.
    ///
    /// # Errors
    /// When the database cannot be written, or the row of the server cannot be read; nothing is changed then.
    pub async fn update_server(
        &self,
        mut new: Server,
        certificate: CertificateChange,
        event: NewEvent,
        waiting: Option<RunId>,
    ) -> Result<UpdatedServer, StoreError> {
        const OPERATION: &str = "update a server";
        self.writer
            .write(OPERATION, move |connection| {
                let Some(existing) = find(connection, &new.serial)? else {
                    return Ok(UpdatedServer::Unknown);
                };
                let moved = match certificate {
                    CertificateChange::Keep => {
                        new.tls_fingerprint.clone_from(&existing.tls_fingerprint);
                        false
                    }
                    CertificateChange::Replace { from } => from != existing.tls_fingerprint,
                };
                if moved || existing.revision != new.revision {
                    return Ok(UpdatedServer::Moved(Box::new(existing)));
                }
                let replaces_bmc = existing.bmc_address != new.bmc_address
                    || existing.tls_fingerprint != new.tls_fingerprint;
                let run = if replaces_bmc { unended(connection, &new.serial)? } else { None };
                if let Some(run) = run.filter(|run| Some(*run) != waiting) {
                    return Ok(UpdatedServer::Busy(run));
                }
                let update = "UPDATE servers SET bmc_address = ?3, bmc_username = ?4,
                                  bmc_password = reseal_text(?5, 'credential', ?1), vendor = ?6,
                                  labels = ?7, tls = ?8, tls_fingerprint = ?9, allow_unverified_serial = ?10,
                                  media_base_url = ?11, bmc_profile = ?12, quirks = ?13, network = ?15, updated_at = ?14,
                                  revision = revision + 1
                              WHERE serial = ?1 AND id = ?2";
                write_columns(connection, OPERATION, update, &new, new.updated_at)?;
                if replaces_bmc {
                    share_bmc(connection, &new.bmc_address, new.updated_at)?;
                }
                append_events(connection, OPERATION, None, Some(&new.serial), new.updated_at, &[event])?;
                let updated = found(connection, &new.serial)?;
                Ok(UpdatedServer::Updated(Box::new(updated)))
            })
            .await
    }

    /// Deletes a server that has no runs but ended ones with [`Purpose::Observe`](model::Purpose) and the ended trees of
    /// `history`, which are deleted with it.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is deleted then.
    pub async fn delete_server(
        &self,
        serial: &Serial,
        history: &[RunId],
        event: NewEvent,
        now: Time,
    ) -> Result<DeletedServer, StoreError> {
        const OPERATION: &str = "delete a server";
        let serial = serial.clone();
        let history: Vec<String> = history.iter().map(RunId::to_string).collect();
        let history = serde_json::Value::from(history).to_string();
        self.writer
            .write(OPERATION, move |connection| {
                let runs: u64 = first(
                    connection,
                    OPERATION,
                    "SELECT count(*) AS runs FROM runs WHERE root IN (SELECT root FROM runs WHERE server = ?1)
                     AND (phase <> 'ended' OR (purpose = 'change' AND root NOT IN (SELECT value FROM json_each(?2))))",
                    params![serial.as_str(), history],
                    |columns| columns.count("runs"),
                )?
                .unwrap_or(0);
                if runs > 0 {
                    return Ok(DeletedServer::HasJobs(runs));
                }
                // One statement for whole trees, because a parent cannot be deleted before its children.
                execute(
                    connection,
                    OPERATION,
                    "DELETE FROM runs WHERE root IN (SELECT root FROM runs WHERE server = ?1)",
                    &[&serial.as_str()],
                )?;
                let gone = execute(
                    connection,
                    OPERATION,
                    "DELETE FROM servers WHERE serial = ?1",
                    &[&serial.as_str()],
                )?;
                if gone == 0 {
                    return Ok(DeletedServer::Unknown);
                }
                append_events(connection, OPERATION, None, Some(&serial), now, &[event])?;
                Ok(DeletedServer::Deleted)
            })
            .await
    }

    /// Stores the certificate fingerprint that a BMC showed at the first contact, unless one is registered or the record is no
    /// longer at `revision`: another address may be another BMC.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn pin_server(
        &self,
        server: &Serial,
        revision: i64,
        fingerprint: String,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "store the certificate fingerprint of a BMC";
        let server = server.clone();
        self.writer
            .write(OPERATION, move |connection| {
                let sql = "UPDATE servers SET tls_fingerprint = ?2
                           WHERE serial = ?1 AND revision = ?3 AND tls_fingerprint IS NULL";
                execute(connection, OPERATION, sql, params![server.as_str(), fingerprint, revision]).map(drop)
            })
            .await
    }

    /// Stores an open BMC session, sealed, so that the next controller instance can close it. `None` deletes it.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is stored then.
    pub async fn save_session(&self, server: &Serial, sealed: Option<String>) -> Result<(), StoreError> {
        const OPERATION: &str = "store a BMC session";
        let server = server.clone();
        self.writer
            .write(OPERATION, move |connection| {
                match &sealed {
                    Some(sealed) => execute(
                        connection,
                        OPERATION,
                        // A session of a former key and a former address cannot be sealed again, and not be closed either.
                        "INSERT INTO bmc_sessions (server, sealed)
                         SELECT ?1, session.sealed FROM (
                             SELECT reseal_text(?2, 'session', 'bmc-session/' || ?1 || '/' ||
                                 (SELECT bmc_address FROM servers WHERE serial = ?1)) AS sealed
                         ) AS session
                         WHERE stale_key(session.sealed) IS NULL
                         ON CONFLICT (server) DO UPDATE SET sealed = excluded.sealed",
                        params![server.as_str(), sealed],
                    ),
                    None => execute(
                        connection,
                        OPERATION,
                        "DELETE FROM bmc_sessions WHERE server = ?1",
                        &[&server.as_str()],
                    ),
                }
                .map(drop)
            })
            .await
    }

    /// The servers with a stored BMC session.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn saved_sessions(&self) -> Result<Vec<Serial>, StoreError> {
        const OPERATION: &str = "list stored BMC sessions";
        self.read(OPERATION, move |connection| {
            all(connection, OPERATION, "SELECT server FROM bmc_sessions ORDER BY server", &[], |columns| {
                columns.parse("server", str::parse)
            })
        })
        .await
    }

    /// The stored BMC session of a server, sealed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn saved_session(&self, server: &Serial) -> Result<Option<String>, StoreError> {
        const OPERATION: &str = "read a stored BMC session";
        let server = server.clone();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT sealed FROM bmc_sessions WHERE server = ?1",
                &[&server.as_str()],
                |columns| columns.get("sealed"),
            )
        })
        .await
    }
}

/// Registers a server in the writer's transaction.
fn create(connection: &Connection, new: &Server, event: NewEvent) -> Result<ServerChange, StoreError> {
    const OPERATION: &str = "register a server";
    if let Some(existing) = find(connection, &new.serial)? {
        return Ok(ServerChange::Exists(Box::new(existing)));
    }
    let insert =
        "INSERT INTO servers (serial, id, bmc_address, bmc_username, bmc_password, vendor, labels, tls,
                      tls_fingerprint, allow_unverified_serial, media_base_url, bmc_profile, quirks, network,
                      created_at, updated_at)
                  VALUES (?1, ?2, ?3, ?4, reseal_text(?5, 'credential', ?1), ?6, ?7, ?8, ?9, ?10, ?11, ?12,
                          ?13, ?15, ?14, ?14)";
    write_columns(connection, OPERATION, insert, new, new.created_at)?;
    share_bmc(connection, &new.bmc_address, new.created_at)?;
    append_events(connection, OPERATION, None, Some(&new.serial), new.created_at, &[event])?;
    Ok(ServerChange::Created(Box::new(found(connection, &new.serial)?)))
}

/// Writes the columns that an operator gives: `?1` serial number, `?2` id, `?3` to `?13` and `?15` the columns, `?14` the time.
fn write_columns(
    connection: &Connection,
    operation: &'static str,
    sql: &str,
    new: &Server,
    at: Time,
) -> Result<(), StoreError> {
    execute(
        connection,
        operation,
        sql,
        params![
            new.serial.as_str(),
            new.id.to_string(),
            new.bmc_address,
            new.bmc_username,
            new.bmc_password,
            new.vendor,
            to_json(operation, &new.labels)?,
            new.tls.as_str(),
            new.tls_fingerprint,
            new.allow_unverified_serial,
            new.media_base_url,
            new.bmc_profile,
            object(operation, &new.quirks)?,
            at.to_string(),
            object(operation, &new.network)?
        ],
    )
    .map(drop)
}

fn object(operation: &'static str, object: &Option<Map<String, Json>>) -> Result<Option<String>, StoreError> {
    object.as_ref().map(|object| to_json(operation, object)).transpose()
}

pub(super) fn find(connection: &Connection, serial: &Serial) -> Result<Option<Server>, StoreError> {
    first(
        connection,
        "read a server",
        &format!("SELECT {COLUMNS} WHERE servers.serial = ?1"),
        &[&serial.as_str()],
        server,
    )
}

/// Reads a server that was just written.
fn found(connection: &Connection, serial: &Serial) -> Result<Server, StoreError> {
    find(connection, serial)?.ok_or(StoreError::Corrupt {
        operation: "read a server",
        column: "serial",
        detail: "the row just written is not there".to_owned(),
    })
}

/// The newest unfinished run of a server.
pub(super) fn unended(connection: &Connection, server: &Serial) -> Result<Option<RunId>, StoreError> {
    first(
        connection,
        "find the unfinished job of a server",
        "SELECT id FROM runs WHERE server = ?1 AND phase <> 'ended' ORDER BY created_at DESC LIMIT 1",
        &[&server.as_str()],
        |columns| columns.parse("id", str::parse::<RunId>),
    )
}

fn server(columns: &Columns<'_>) -> Result<Server, StoreError> {
    Ok(Server {
        serial: columns.parse("serial", str::parse)?,
        id: columns.parse("id", str::parse)?,
        bmc_address: columns.get("bmc_address")?,
        bmc_username: columns.get("bmc_username")?,
        bmc_password: columns.get("bmc_password")?,
        vendor: columns.get("vendor")?,
        bmc_profile: columns.get("bmc_profile")?,
        quirks: columns.json_opt("quirks")?,
        network: columns.json_opt("network")?,
        labels: columns.json("labels")?,
        tls: columns.parse("tls", |name| TlsMode::parse(name).ok_or_else(|| format!("unknown {name:?}")))?,
        tls_fingerprint: columns.get("tls_fingerprint")?,
        allow_unverified_serial: columns.get("allow_unverified_serial")?,
        media_base_url: columns.get("media_base_url")?,
        revision: columns.get("revision")?,
        created_at: columns.time("created_at")?,
        updated_at: columns.time("updated_at")?,
        last_seen: columns.time_opt("last_seen")?,
        observed: columns.json_opt("observed")?,
        learned: columns.json_opt("learned")?,
        pending_cleanup: columns.json_opt("pending_cleanup")?,
        maintenance: columns.json_opt("maintenance")?,
        restored: columns.json_opt("restored")?,
    })
}

/// Writes what a job observed of a server. The update that a run has left to the BMC stays.
pub(super) fn observed(
    connection: &Connection,
    serial: &Serial,
    observed: Option<&Json>,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "write what was observed of a server";
    let observed = observed.map(|observed| to_json(OPERATION, observed)).transpose()?;
    execute(
        connection,
        OPERATION,
        "INSERT INTO server_observed (serial, observed) SELECT serial, ?2 FROM servers WHERE serial = ?1
         ON CONFLICT (serial) DO UPDATE SET observed = CASE
             WHEN server_observed.observed -> '$.update' IS NULL THEN excluded.observed
             ELSE json_set(coalesce(excluded.observed, '{}'), '$.update', json(server_observed.observed -> '$.update'))
         END",
        params![serial.as_str(), observed],
    )?;
    seen(connection, serial, now)
}

/// Writes when the BMC of a server responded last.
pub(super) fn seen(connection: &Connection, serial: &Serial, now: Time) -> Result<(), StoreError> {
    execute(
        connection,
        "write when a BMC responded",
        "UPDATE servers SET last_seen = ?2 WHERE serial = ?1",
        params![serial.as_str(), now.to_string()],
    )
    .map(drop)
}

/// Writes the update that a run leaves to the BMC of a server, beside what was observed; `None` when it has ended. Every server of
/// the BMC has it: a job on another one would cut it as well.
pub(super) fn update_left(
    connection: &Connection,
    serial: &Serial,
    update: Option<&Json>,
) -> Result<(), StoreError> {
    const OPERATION: &str = "write the update that was left to a BMC";
    let Some(update) = update else {
        let sql = "UPDATE server_observed SET observed = nullif(json_remove(observed, '$.update'), '{}')
                   WHERE serial = ?1
                      OR (observed -> '$.update' = (SELECT observed -> '$.update' FROM server_observed WHERE serial = ?1)
                          AND serial IN (SELECT serial FROM servers
                                         WHERE bmc_address = (SELECT bmc_address FROM servers WHERE serial = ?1)))";
        return execute(connection, OPERATION, sql, params![serial.as_str()]).map(drop);
    };
    execute(
        connection,
        OPERATION,
        "INSERT INTO server_observed (serial, observed)
         SELECT serial, json_object('update', json(?2)) FROM servers
         WHERE bmc_address = (SELECT bmc_address FROM servers WHERE serial = ?1)
         ON CONFLICT (serial) DO UPDATE
         SET observed = json_set(coalesce(server_observed.observed, '{}'), '$.update', json(?2))",
        params![serial.as_str(), to_json(OPERATION, update)?],
    )
    .map(drop)
}

/// Writes the learned behaviour of a server's BMC.
pub(super) fn learned(connection: &Connection, serial: &Serial, learned: &Json) -> Result<(), StoreError> {
    const OPERATION: &str = "write the learned behaviour of a BMC";
    execute(
        connection,
        OPERATION,
        "INSERT INTO server_observed (serial, learned) SELECT serial, ?2 FROM servers WHERE serial = ?1
         ON CONFLICT (serial) DO UPDATE SET learned = excluded.learned",
        params![serial.as_str(), to_json(OPERATION, learned)?],
    )
    .map(drop)
}

/// Writes the pending cleanup of a server; `None` when there is none.
pub(super) fn set_pending_cleanup(
    connection: &Connection,
    serial: &Serial,
    pending: Option<&PendingCleanup>,
) -> Result<(), StoreError> {
    const OPERATION: &str = "write the pending cleanup of a server";
    let pending = pending.map(|pending| to_json(OPERATION, pending)).transpose()?;
    execute(
        connection,
        OPERATION,
        "INSERT INTO server_observed (serial, pending_cleanup) SELECT serial, ?2 FROM servers WHERE serial = ?1
         ON CONFLICT (serial) DO UPDATE SET pending_cleanup = excluded.pending_cleanup",
        params![serial.as_str(), pending],
    )
    .map(drop)
}

/// Stores the certificate fingerprint that the BMC showed at the first contact. The revision stays, because no operator
/// changed the server.
pub(super) fn pin(connection: &Connection, serial: &Serial, fingerprint: &str) -> Result<(), StoreError> {
    execute(
        connection,
        "store the certificate fingerprint of a BMC",
        "UPDATE servers SET tls_fingerprint = ?2 WHERE serial = ?1 AND tls_fingerprint IS NULL",
        params![serial.as_str(), fingerprint],
    )
    .map(drop)
}
