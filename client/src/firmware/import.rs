//! `shoal firmware set import`: the files of a vendor's catalogue that are in a folder. Offline: nothing is downloaded.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::input;
use super::super::output::{Output, plain};
use super::add::push;
use super::set_view;
use firmware::catalogue::{Additions, CatalogueProblem, CheckResult, Format, Listed, check, find, read};
use firmware::{Component, Model};

/// The most entries of a catalogue that one import takes.
const MAX_TAKEN: usize = 5_000;

/// Arguments of `shoal firmware set import`.
#[derive(Args, Debug)]
pub(crate) struct ImportCatalogue {
    /// The folder with the catalogue and its files
    folder: PathBuf,
    /// The catalogue, if it has another name or place
    #[arg(long, value_name = "FILE", requires = "format")]
    catalogue: Option<PathBuf>,
    /// The format of --catalogue: dell, hpe or lenovo
    #[arg(long, requires = "catalogue")]
    format: Option<Format>,
    /// Only files for this model; may be given more than once
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<Model>,
    /// Only files for this component; may be given more than once
    #[arg(long = "component", value_name = "COMPONENT")]
    components: Vec<Component>,
    /// The model of files whose catalogue states none; may be given more than once
    #[arg(long = "for-model", value_name = "MODEL")]
    for_models: Vec<Model>,
    /// The component of files whose catalogue states none
    #[arg(long, value_name = "COMPONENT")]
    for_component: Option<Component>,
    /// Show what would be added, what is missing and what does not match its checksum; add nothing
    #[arg(long)]
    dry_run: bool,
    /// Create a set of the added files
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// A label of the set
    #[arg(long = "label", value_name = "KEY=VALUE", requires = "set", value_parser = crate::label)]
    labels: Vec<(String, String)>,
}

/// One entry of the catalogue, with the result of its check and of its import.
struct Row {
    listed: Listed,
    checked: Result<CheckResult, CatalogueProblem>,
    /// The result of its push.
    pushed: Option<Pushed>,
}

/// The result of the push of a file.
enum Pushed {
    /// The response of the controller.
    Added(Value),
    /// The controller refused this file.
    Refused(String),
    /// The import ended at this file.
    Failed(String),
}

impl ImportCatalogue {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        input::exists(&self.folder)?;
        if let Some(catalogue) = &self.catalogue {
            input::exists(catalogue)?;
        }
        let mut rows = self.preview()?;
        let mut ended = Ok(());
        if !self.dry_run {
            for row in &mut rows {
                let Ok(ready) = &row.checked else { continue };
                match push(&ready.path, &ready.file, client, output).await {
                    Ok(added) => row.pushed = Some(Pushed::Added(added)),
                    // A refusal of one file stays with the file; any other error ends the import.
                    Err(why @ CliError::Refused { status: 400 | 409, .. }) => {
                        row.pushed = Some(Pushed::Refused(why.to_string()));
                    }
                    Err(error) => {
                        row.pushed = Some(Pushed::Failed(error.to_string()));
                        ended = Err(error);
                        break;
                    }
                }
            }
        }
        let digests: Vec<String> = rows.iter().filter_map(Row::digest).collect();
        let failed = rows.iter().filter(|row| row.failed()).count();
        let set = match &self.set {
            Some(name) if !self.dry_run && failed == 0 && ended.is_ok() => {
                set_view::create(name, &digests, &self.labels, client).await.map(Some)
            }
            _ => Ok(None),
        };
        // The files are shown also when the set was refused.
        let (set, ended) = match set {
            Ok(set) => (set, ended),
            Err(error) => (None, Err(error)),
        };
        let shown = rows.iter().map(Row::json).collect::<Vec<_>>();
        if output.json {
            output.document(&json!({ "dry_run": self.dry_run, "entries": shown, "set": set }))?;
        } else {
            let cells = rows.iter().map(Row::cells).collect::<Vec<_>>();
            output.table(&["STATE", "COMPONENT", "VERSION", "FILE", "NOTE"], &cells)?;
            if let Some(set) = &set {
                set_view::show(set, output)?;
            }
        }
        ended?;
        if failed > 0 {
            let no_set = self.set.is_some() && !self.dry_run;
            return Err(CliError::failed(format!(
                "{failed} files of the catalogue were refused{}; the column NOTE says why",
                if no_set { ", so the set was not created" } else { "" }
            )));
        }
        Ok(())
    }

    /// Reads the catalogues and checks the files of the wanted entries.
    fn preview(&self) -> Result<Vec<Row>, CliError> {
        let local = |why: firmware::catalogue::CatalogueError| {
            let source =
                std::error::Error::source(&why).map(|source| format!(": {source}")).unwrap_or_default();
            CliError::failed(format!("{why}{source}"))
        };
        let catalogues = match (&self.catalogue, self.format) {
            (Some(path), Some(format)) => vec![(path.clone(), format)],
            _ => find(&self.folder).map_err(local)?,
        };
        let (mut taken, mut more) = (Vec::new(), 0_usize);
        read(&catalogues, &mut |listed| {
            if !self.wants(&listed) {
                return;
            }
            if taken.len() < MAX_TAKEN { taken.push(listed) } else { more += 1 }
        })
        .map_err(local)?;
        if more > 0 {
            return Err(CliError::Usage(format!(
                "the catalogue has {} entries, of which one import takes {MAX_TAKEN}; choose with --model and --component",
                taken.len() + more
            )));
        }
        let additions =
            Additions { models: self.for_models.iter().cloned().collect(), component: self.for_component };
        let rows = taken.into_iter().map(|listed| {
            let checked = check(&self.folder, &listed, &additions);
            Row { listed, checked, pushed: None }
        });
        Ok(rows.collect())
    }

    /// Whether an entry is for a wanted model and component. What the catalogue does not state does not exclude an entry.
    fn wants(&self, listed: &Listed) -> bool {
        let stated = listed.models(listed.component.or(self.for_component));
        let model = self.models.is_empty()
            || stated.is_empty()
            || self.models.iter().any(|model| stated.contains(model));
        let component = self.components.is_empty()
            || listed.component.is_none_or(|component| self.components.contains(&component));
        model && component
    }
}

impl Row {
    fn digest(&self) -> Option<String> {
        match &self.pushed {
            Some(Pushed::Added(added)) => added["digest"].as_str().map(str::to_owned),
            _ => None,
        }
    }

    fn state(&self) -> &'static str {
        match (&self.checked, &self.pushed) {
            (_, Some(Pushed::Added(_))) => "added",
            (_, Some(Pushed::Refused(_))) => "refused",
            (_, Some(Pushed::Failed(_))) => "failed",
            (Ok(_), None) => "ready",
            (Err(CatalogueProblem::Missing), None) => "missing",
            (Err(CatalogueProblem::OtherChecksum | CatalogueProblem::OtherSize { .. }), None) => "mismatch",
            (Err(_), None) => "incomplete",
        }
    }

    /// Whether the file is damaged or the controller refused it. A file that is not in the folder is no failure.
    fn failed(&self) -> bool {
        matches!(self.state(), "refused" | "mismatch")
    }

    fn note(&self) -> String {
        match (&self.checked, &self.pushed) {
            (_, Some(Pushed::Refused(why) | Pushed::Failed(why))) => why.clone(),
            (Err(why), _) => why.to_string(),
            (Ok(ready), _) if !ready.verified => "the catalogue has no checksum to compare".to_owned(),
            (Ok(_), _) => String::new(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let component = match &self.checked {
            Ok(ready) => Some(ready.file.component),
            Err(_) => self.listed.component,
        };
        let component = component.map(|component| component.to_string()).unwrap_or_default();
        let cells = [
            self.state().to_owned(),
            component,
            self.listed.version.clone(),
            self.listed.path.clone(),
            self.note(),
        ];
        cells.map(|cell| plain(&cell)).to_vec()
    }

    fn json(&self) -> Value {
        let Listed { path, vendor, title, version, .. } = &self.listed;
        let note = Some(self.note()).filter(|note| !note.is_empty());
        let ready = self.checked.as_ref().ok();
        json!({
            "state": self.state(), "path": path, "vendor": vendor, "title": title, "version": version,
            "component": ready.map(|ready| ready.file.component).or(self.listed.component),
            "models": ready.map_or_else(|| json!(self.listed.models(self.listed.component)), |ready| json!(ready.file.models())),
            "sha256": ready.map(|ready| ready.file.sha256.hex()), "size": ready.map(|ready| ready.file.size),
            "verified": ready.is_some_and(|ready| ready.verified), "digest": self.digest(), "note": note,
        })
    }
}
