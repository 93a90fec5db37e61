//! `shoal demo --vm`: a virtual machine is installed from a real boot medium, and boots what was installed.
//!
//! ```text
//!   controller <--API--  this command  --starts--> BMC of the machine ──► QEMU
//!        ^  \---Redfish, media by Range---------------------------------/   |
//!        \------ image and report, over 10.0.2.100 -------------------------/
//! ```
//!
//! The medium and a trial system are made from the packages of the folder `packages` and the agent; files that are given replace
//! them. What is missing is named, with the way to get it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lab_vm::{Firmware, GUEST_ADDRESS, Network, VirtualMachine};
use recipe::RecipeSchemas;
use registry::RepositoryName;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::numbers::Numbers;
use super::timeline::Timeline;
use super::{BMC_USER, DemoApi, DemoServer, ExpectedEnd, follow};
use crate::DemoArgs;
use crate::sim::random_password;
use crate::vm::{self, BmcPlace};
use controller::app::{self, OfflineRegistry, RunningController, stop_signal};
use model::{SteadyClock, SystemClock};
use settings::{Settings, Sources};

/// The serial number of the machine.
const SERIAL: &str = "VM-0001";
/// The repository of the image, if it is a folder or an archive.
const REPOSITORY: &str = "os-images/vm";
/// The only disk of the machine as Linux names it.
const DISK: &str = "/dev/vda";
/// The time within which the job must end. Emulated processors are slow.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// The time from the first boot of the disk to the login prompt.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(900);
/// The text that an installed system prints when it is ready.
const LOGIN: &str = "login:";

/// The message about the files that a virtual machine needs and this program does not contain.
const NEEDED: &str = "shoal demo --vm installs a real system from files that this program does not contain:

  packages          kernel and programs of the boot medium, and of the trial system that is installed. On a machine that
                    reaches a Debian mirror: shoal maintenance fetch packages
                    The folder `packages` is taken by itself; --packages FOLDER names another one
  agent             the program that installs, of the crate `agent`: cargo static-agent
                    It is found beside this program, in ../lib/shoal or where it was built; --agent FILE names another one

In their place: --medium FILE, a boot medium of `shoal maintenance build`, and --image IMAGE, the folder or tar of an OCI image layout or
a reference HOST/REPOSITORY:TAG. An image must have a kernel and a boot loader, which images for containers do not have;
docs/operating.md makes one with mmdebstrap and umoci. A machine that starts by BIOS needs such an image.

All of it stays usable without a network. The demonstration without these files is `shoal demo`; a virtual machine for your own
controller is `shoal sim --vm`";

/// The folder of packages that is taken by itself.
const PACKAGES: &str = "packages";

/// The files that the demonstration starts from.
#[derive(Debug)]
struct Files {
    medium: MediumSource,
    image: Image,
}

impl Files {
    /// The files that the options name; for the others, the files that lie where they are expected. `beside` is the folder of
    /// this program.
    fn of(args: &DemoArgs, beside: Option<&Path>) -> anyhow::Result<Self> {
        let packages =
            args.packages.clone().or_else(|| Some(PathBuf::from(PACKAGES)).filter(|folder| folder.is_dir()));
        let agent = args.agent.clone().or_else(|| maintenance::find_agent(beside?));
        let mut missing = Vec::new();
        let medium = match (&args.medium, &packages, agent) {
            (Some(file), _, _) => Some(MediumSource::File(file.clone())),
            (None, Some(packages), Some(agent)) => Some(MediumSource::Made(maintenance::Inputs {
                packages: packages.clone(),
                kernel: None,
                agent,
                // The small one makes the file systems of the default layout, and boots sooner.
                profile: match args.recipe {
                    Some(_) => maintenance::ImageProfile::Full,
                    None => maintenance::ImageProfile::Small,
                },
                // A kernel on a busy emulator stops at the check of its timer.
                command_line: "no_timer_check".to_owned(),
            })),
            (None, _, agent) => {
                missing.extend(agent.is_none().then_some("the agent"));
                None
            }
        };
        let image = match (&args.image, packages) {
            (Some(image), _) => Some(Image::of(image)),
            (None, Some(packages)) => Some(Image::Trial(packages)),
            (None, None) => None,
        };
        match (medium, image) {
            (Some(medium), Some(image)) => {
                let firmware = args.machine.vm_firmware;
                if matches!(image, Image::Trial(_)) && firmware == Firmware::Bios {
                    bail!(
                        "the trial system starts by UEFI only; give --image, or leave out --vm-firmware bios\n\n{NEEDED}"
                    );
                }
                Ok(Self { medium, image })
            }
            (medium, image) => {
                if image.is_none() || (medium.is_none() && missing.is_empty()) {
                    missing.insert(0, "the folder packages");
                }
                bail!("missing: {}\n\n{NEEDED}", missing.join(", "))
            }
        }
    }
}

/// The source of the OS image.
#[derive(Debug, PartialEq)]
enum Image {
    /// The trial system, which is made from this folder of packages.
    Trial(PathBuf),
    /// The folder or archive of an image layout, which is imported into the controller's registry.
    Layout(PathBuf),
    /// A reference to another registry.
    Reference(String),
}

impl Image {
    fn of(text: &str) -> Self {
        let path = Path::new(text);
        if path.exists() { Self::Layout(path.to_owned()) } else { Self::Reference(text.to_owned()) }
    }
}

/// The source of the boot medium.
#[derive(Debug)]
enum MediumSource {
    /// The boot medium is a file.
    File(PathBuf),
    /// The boot medium is made from packages and an agent.
    Made(maintenance::Inputs),
}

impl MediumSource {
    /// The file of the medium, which is made in `folder` if there is none.
    async fn file(self, folder: &Path, timeline: &mut Timeline) -> anyhow::Result<PathBuf> {
        let inputs = match self {
            Self::File(path) => {
                return std::fs::canonicalize(&path)
                    .with_context(|| format!("the boot medium {} cannot be opened", path.display()));
            }
            Self::Made(inputs) => inputs,
        };
        let path = folder.join("maintenance.iso");
        let written = path.clone();
        let bytes = tokio::task::spawn_blocking(move || {
            let medium = maintenance::build(&inputs, &mut |_| {}).context("make the boot medium")?;
            let mut file = std::io::BufWriter::new(std::fs::File::create(&written)?);
            medium.plan.write_to(&mut file).with_context(|| format!("write {}", written.display()))?;
            file.into_inner().context("write the boot medium")?;
            anyhow::Ok(std::fs::metadata(&written)?.len())
        });
        let bytes = bytes.await.context("make the boot medium")??;
        timeline.note("medium", &format!("made from the packages, {bytes} bytes"));
        Ok(std::fs::canonicalize(path)?)
    }
}

/// Installs the machine. Returns whether it printed a login prompt at the end.
pub(super) async fn run(args: &DemoArgs, json: bool) -> anyhow::Result<bool> {
    let program = std::env::current_exe().ok();
    let Files { medium, image } = Files::of(args, program.as_deref().and_then(Path::parent))?;
    if let MediumSource::File(path) = &medium {
        std::fs::metadata(path)
            .with_context(|| format!("the boot medium {} cannot be opened", path.display()))?;
    }
    let tools = vm::tools(&args.machine).await?;
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let disks = args.machine.disks_folder(folder.path());
    let mut timeline = Timeline::new(json);
    timeline.title(&format!("Shoal {}: installs a virtual machine", env!("CARGO_PKG_VERSION")));
    timeline.note("qemu", &format!("firmware {}, {tools}", args.machine.vm_firmware));

    let medium = medium.file(folder.path(), &mut timeline).await?;
    let settings = settings(folder.path(), &medium)?;
    let oci_url = match &image {
        Image::Reference(reference) => reference.clone(),
        Image::Layout(path) => import(&settings, path, &mut timeline).await?,
        Image::Trial(packages) => {
            let layout = trial_image(packages, folder.path(), &mut timeline).await?;
            import(&settings, &layout, &mut timeline).await?
        }
    };
    let recipe = recipe(args.recipe.as_deref(), &oci_url, args.machine.no_network)?;
    let clock = Arc::new(SteadyClock::new(SystemClock));
    let running = app::start(settings, clock).await.context("start the controller")?;
    timeline.note("controller", &format!("listening on {}, data in a temporary folder", running.api));
    let password = random_password()?;
    // An image of another registry is pulled by the machine itself.
    let network = vm::network_to(running.api, !matches!(image, Image::Reference(_)))?;
    let place = BmcPlace {
        address: ([127, 0, 0, 1], 0).into(),
        user: BMC_USER.to_owned(),
        password: password.clone(),
        https: false,
    };
    let machine = match machine(args, tools, network, disks, place).await {
        Ok(machine) => machine,
        Err(error) => {
            running.stop().await;
            return Err(error);
        }
    };
    timeline.note("vm", &format!("BMC on {}, console in {}", machine.bmc_url, machine.log().display()));
    let ended = tokio::select! {
        ended = install(&running, &machine, &password, &recipe, &mut timeline) => ended,
        () = stop_signal() => Err(anyhow::anyhow!("stopped by a signal")),
    };
    if args.keep && ended.is_ok() {
        timeline.note("vm", &format!("still running, BMC on {}; press Ctrl-C to end", machine.bmc_url));
        stop_signal().await;
    }
    machine.shutdown().await;
    running.stop().await;
    ended
}

async fn machine(
    args: &DemoArgs,
    tools: lab_vm::VmTools,
    network: Network,
    disks: PathBuf,
    place: BmcPlace,
) -> anyhow::Result<VirtualMachine> {
    let machine = vm::start(&args.machine, SERIAL, tools, network, disks, place).await?;
    if args.machine.console {
        tokio::spawn(vm::print_console(machine.console().clone()));
        vm::type_from_terminal(machine.keyboard());
    }
    Ok(machine)
}

fn settings(folder: &Path, medium: &Path) -> anyhow::Result<Settings> {
    let flags = [
        ("STORAGE_ROOT", folder.join("data").display().to_string()),
        ("CONTROLLER_HTTP_ADDR", "127.0.0.1:0".to_owned()),
        ("CONTROLLER_HTTPS_ADDR", "127.0.0.1:0".to_owned()),
        ("CONTROLLER_PUBLIC_URL", format!("http://{GUEST_ADDRESS}")),
        ("MAINTENANCE_ISO_URL", medium.display().to_string()),
    ];
    Ok(Settings::load(&Sources {
        flags: flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        environment: &|_| None,
        variables: Vec::new(),
        file: None,
    })?)
}

/// Makes the trial system in `folder`. Returns the folder of its image layout.
async fn trial_image(packages: &Path, folder: &Path, timeline: &mut Timeline) -> anyhow::Result<PathBuf> {
    let (packages, layout) = (packages.to_owned(), folder.join("trial"));
    let written = layout.clone();
    let made = tokio::task::spawn_blocking(move || {
        maintenance::write_trial_image(&packages, &written, &mut |_| {}).context("make the trial system")
    });
    let bytes = made.await.context("make the trial system")??;
    timeline.note("image", &format!("a trial system made from the packages, {bytes} bytes"));
    Ok(layout)
}

/// Imports the image before the controller starts. Returns the reference to it.
async fn import(settings: &Settings, layout: &Path, timeline: &mut Timeline) -> anyhow::Result<String> {
    let shown = layout.display();
    let repository: RepositoryName = REPOSITORY.parse().context("the repository of the demo")?;
    let opened = OfflineRegistry::open(settings).await.context("open the registry of the controller")?;
    let imported = opened
        .registry
        .import(layout, &repository)
        .await
        .with_context(|| format!("{shown} is no OCI image layout that can be imported"))?;
    let tag = imported.tags.first().with_context(|| {
        format!(
            "the image layout {shown} has no tag; write one, for example with umoci tag --image FOLDER:OLD NEW"
        )
    })?;
    timeline.note("registry", &format!("imported {REPOSITORY}:{tag}, {} bytes", imported.bytes));
    Ok(format!("{GUEST_ADDRESS}/{REPOSITORY}:{tag}"))
}

/// The recipe: the given one, or that of the demo for the disk of this machine. A machine without a network gets the image on its medium.
fn recipe(path: Option<&Path>, oci_url: &str, on_medium: bool) -> anyhow::Result<String> {
    let mut recipe: Value = match path {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("the recipe {} cannot be read", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("the recipe {} is no JSON", path.display()))?
        }
        None => {
            // Version 2 has a default layout, which boots by UEFI and by BIOS.
            let schema = RecipeSchemas::builtin();
            json!({
                "$schema": schema.current_id(), "task_target": "install-linux.target", "target_disk": DISK,
                "user_data": "#cloud-config\n",
            })
        }
    };
    let object = recipe.as_object_mut().context("the recipe is no JSON object")?;
    object.insert("oci_url".to_owned(), json!(oci_url));
    if on_medium {
        object.insert("delivery".to_owned(), json!("media"));
    }
    Ok(recipe.to_string())
}

async fn install(
    running: &RunningController,
    machine: &VirtualMachine,
    password: &SecretString,
    recipe: &str,
    timeline: &mut Timeline,
) -> anyhow::Result<bool> {
    let token = running.first_token.as_ref().context("the controller created no admin token")?;
    let api = DemoApi::new(running.api, token)?;
    api.register(SERIAL, &machine.bmc_url, BMC_USER, password, json!({})).await?;
    let job_id = api.create_job(SERIAL, recipe).await?;
    timeline.note("api", "1 job accepted");
    // The maintenance OS prints on the console too: only what follows the first boot of the disk counts.
    let (bmc, console) = (machine.bmc.clone(), machine.console().clone());
    let disk_boot = tokio::spawn(async move {
        bmc.wait_for(|now| now.boots_from_disk > 0).await;
        console.mark()
    });
    let bmc = machine.bmc.clone();
    let power_on = tokio::spawn(async move {
        bmc.wait_for(|now| now.power_ons > 0).await;
        jiff::Timestamp::now()
    });
    let server = DemoServer { serial: SERIAL.to_owned(), expected: ExpectedEnd::Installed, job_id };
    follow(&api, std::slice::from_ref(&server), timeline, TIMEOUT).await?;
    let job = api.job(&server.job_id).await?;
    let ended = if job["outcome"] == json!("succeeded") {
        timeline.note("vm", "installed; waiting for its login prompt");
        let login = async {
            let mark = disk_boot.await?;
            anyhow::Ok(machine.console().wait_for(mark, LOGIN).await)
        };
        match tokio::time::timeout(LOGIN_TIMEOUT, login).await {
            Ok(text) => Ok(last_line(&text?)),
            Err(_) => Err(format!("no login prompt within {} s", LOGIN_TIMEOUT.as_secs())),
        }
    } else {
        disk_boot.abort();
        Err(format!("outcome {} at {}", job["outcome"], job["failed_step"]))
    };
    if ended.is_err() {
        timeline.all_events(&job["events"]);
    }
    let sentence = match &ended {
        Ok(line) => format!("boots its disk: {line}"),
        Err(why) => format!("UNEXPECTED: {why}; the console is in {}", machine.log().display()),
    };
    let powered_on = if power_on.is_finished() { power_on.await.ok() } else { None };
    let numbers = Numbers::of(&api, &server.job_id, powered_on).await?;
    for sentence in numbers.sentences() {
        timeline.note("numbers", &sentence);
    }
    let result = json!({
        "numbers": numbers.document(), "server_serial": SERIAL, "job_id": server.job_id, "outcome": job["outcome"],
        "failed_step": job["failed_step"], "as_expected": ended.is_ok(), "machine": sentence,
    });
    timeline.summary(&[result], ended.is_ok());
    Ok(ended.is_ok())
}

/// The line with the login prompt.
fn last_line(text: &str) -> String {
    text.lines().rev().find(|line| line.contains(LOGIN)).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_names_the_image_and_the_only_disk() {
        let text = recipe(None, "10.0.2.100/os-images/vm:12", false).unwrap();
        RecipeSchemas::builtin().validate(&text).expect("the controller accepts the recipe of the demo");
        let made: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(made["target_disk"], json!("/dev/vda"));
        assert_eq!(
            (&made["oci_url"], &made["delivery"]),
            (&json!("10.0.2.100/os-images/vm:12"), &Value::Null)
        );
        let text = recipe(None, "10.0.2.100/os-images/vm:12", true).unwrap();
        let made = RecipeSchemas::builtin()
            .validate(&text)
            .expect("the controller accepts it with the image on the medium");
        assert_eq!(made.delivery, recipe::Delivery::Media);
        assert!(
            recipe(Some(Path::new("/does/not/exist.json")), "x", false)
                .unwrap_err()
                .to_string()
                .contains("exist.json")
        );
    }

    fn files(options: &[&str], beside: Option<&Path>) -> Result<Files, String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            demo: DemoArgs,
        }
        let line = ["shoal", "--vm"].iter().chain(options);
        let line = <Line as clap::Parser>::try_parse_from(line).map_err(|error| error.to_string())?;
        Files::of(&line.demo, beside).map_err(|error| error.to_string())
    }

    #[test]
    fn packages_and_the_agent_beside_the_program_are_enough_and_what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let packages = folder.path().display().to_string();
        let reason = files(&["--packages", &packages], Some(folder.path())).unwrap_err();
        assert!(
            reason.starts_with("missing: the agent\n") && reason.contains("cargo static-agent"),
            "{reason}"
        );
        let reason = files(&["--agent", "a"], None).unwrap_err();
        assert!(reason.starts_with("missing: the folder packages\n"), "{reason}");
        assert!(
            files(&["--medium", "m.iso"], None).unwrap_err().starts_with("missing: the folder packages\n")
        );

        std::fs::write(folder.path().join("shoal-agent"), "agent").unwrap();
        let found = files(&["--packages", &packages], Some(folder.path())).unwrap();
        assert_eq!(found.image, Image::Trial(folder.path().to_owned()));
        let MediumSource::Made(inputs) = found.medium else { panic!("a medium is made") };
        assert_eq!(inputs.agent, folder.path().join("shoal-agent"));

        let given = files(&["--medium", "m.iso", "--image", "registry.example/os:1"], None).unwrap();
        assert_eq!(given.image, Image::Reference("registry.example/os:1".to_owned()));
        let reason =
            files(&["--packages", &packages, "--vm-firmware", "bios"], Some(folder.path())).unwrap_err();
        assert!(reason.starts_with("the trial system starts by UEFI only"), "{reason}");
    }

    #[test]
    fn an_image_is_a_path_that_exists_or_a_reference() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        assert_eq!(Image::of(&path), Image::Layout(folder.path().to_owned()));
        let reference = "registry.example/debian:12";
        assert_eq!(Image::of(reference), Image::Reference(reference.to_owned()));
    }

    #[test]
    fn the_login_prompt_is_shown_without_what_surrounds_it() {
        assert_eq!(last_line("Debian GNU/Linux 12\n\nvm-0001 login: "), "vm-0001 login:");
    }
}
