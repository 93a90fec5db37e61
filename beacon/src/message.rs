//! The messages of a machine without a network, and the symbols that carry them.
//!
//! ```text
//! Started | Done(step) | Success      one symbol
//! Failed { step, class }              two: the class, then the step that completes the message
//! ```

/// The kind of the OS image, which decides the units of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// A root file system: `install-linux.target`.
    RootFileSystem,
    /// An image of a whole disk: `install-image.target`.
    Disk,
}

/// A step of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BeaconStep {
    /// The task is found and read.
    Dispatcher,
    /// The disk is selected.
    SelectDisk,
    /// Old signatures are removed, and the disk is divided.
    Partition,
    /// The image is written.
    Image,
    /// The boot loader is installed; of a disk image, the last partition is grown.
    Loader,
    /// The seed of cloud-init is written.
    Config,
}

impl BeaconStep {
    /// All steps in order.
    pub const ALL: [Self; 6] =
        [Self::Dispatcher, Self::SelectDisk, Self::Partition, Self::Image, Self::Loader, Self::Config];
    /// The steps whose end is a message.
    const WITH_END: [Self; 4] = [Self::Partition, Self::Image, Self::Loader, Self::Config];

    /// Returns the unit of the step, as reports name it.
    #[must_use]
    pub fn unit(self, kind: ImageKind) -> &'static str {
        match (self, kind) {
            (Self::Dispatcher, _) => "provision-dispatcher.service",
            (Self::SelectDisk, _) => "select-disk.service",
            (Self::Partition, _) => "partition.service",
            (Self::Image, ImageKind::RootFileSystem) => "image-linux.service",
            (Self::Image, ImageKind::Disk) => "image-disk.service",
            (Self::Loader, ImageKind::RootFileSystem) => "bootloader-linux.service",
            (Self::Loader, ImageKind::Disk) => "grow-disk.service",
            (Self::Config, _) => "config-drive.service",
        }
    }

    /// Returns the step of a unit, if it has one.
    #[must_use]
    pub fn of_unit(unit: &str) -> Option<Self> {
        let is = |step: &Self| {
            [ImageKind::RootFileSystem, ImageKind::Disk].map(|kind| step.unit(kind)).contains(&unit)
        };
        Self::ALL.into_iter().find(is)
    }

    /// Returns the last step of an installation.
    #[must_use]
    pub fn last(kind: ImageKind) -> Self {
        match kind {
            ImageKind::RootFileSystem => Self::Config,
            ImageKind::Disk => Self::Loader,
        }
    }

    /// Returns whether the end of the step is a message.
    #[must_use]
    pub fn has_end(self) -> bool {
        Self::WITH_END.contains(&self)
    }
}

/// Why a step failed. The log of the machine has the sentence; a beacon has no room for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No disk, or more than one, matches, the disk cannot be used, or the image is not for such a disk.
    Disk,
    /// The image is not the one that the manifest names: a digest differs, or a document is malformed.
    Image,
    /// The medium could not be read.
    Medium,
    /// Anything else on the machine.
    Machine,
}

impl Class {
    const ALL: [Self; 4] = [Self::Disk, Self::Image, Self::Medium, Self::Machine];

    /// Returns the failure class of a job that fails for this reason, as the report of a machine with a network names it.
    #[must_use]
    pub fn failure_class(self) -> &'static str {
        match self {
            Self::Disk => "input",
            Self::Image | Self::Medium => "media",
            Self::Machine => "installer",
        }
    }

    /// Returns the sentence for the operator.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Disk => "the disks of the machine do not fit the recipe or its image; its console says why",
            Self::Image => "the OS image on the medium does not match its digests; push it again",
            Self::Medium => {
                "the medium could not be read to its end; check the way from the BMC to the media address"
            }
            Self::Machine => "the reason is on the console of the machine",
        }
    }
}

/// One unit of transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// The agent runs.
    Started,
    /// A step is done.
    Done(BeaconStep),
    /// The class of the failure that follows.
    Class(Class),
    /// A step failed.
    Failed(BeaconStep),
    /// All steps are done.
    Success,
}

impl Symbol {
    /// All symbols. The order is part of the code: a change makes agents and controllers of two versions misunderstand each other.
    pub const ALL: [Self; 16] = [
        Self::Started,
        Self::Done(BeaconStep::Partition),
        Self::Done(BeaconStep::Image),
        Self::Done(BeaconStep::Loader),
        Self::Done(BeaconStep::Config),
        Self::Class(Class::Disk),
        Self::Class(Class::Image),
        Self::Class(Class::Medium),
        Self::Class(Class::Machine),
        Self::Failed(BeaconStep::Dispatcher),
        Self::Failed(BeaconStep::SelectDisk),
        Self::Failed(BeaconStep::Partition),
        Self::Failed(BeaconStep::Image),
        Self::Failed(BeaconStep::Loader),
        Self::Failed(BeaconStep::Config),
        Self::Success,
    ];
}

/// A message of a machine without a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The agent runs and has found its task.
    Started,
    /// A step is done.
    Done(BeaconStep),
    /// A step failed.
    Failed {
        /// The step.
        step: BeaconStep,
        /// The class; `None` when its reads were lost.
        class: Option<Class>,
    },
    /// The machine is installed.
    Success,
}

impl Message {
    /// Returns the symbols of the message in the order in which they are sent. The end of a step that has no such message has none.
    #[must_use]
    pub fn symbols(self) -> Vec<Symbol> {
        match self {
            Self::Started => vec![Symbol::Started],
            Self::Done(step) if step.has_end() => vec![Symbol::Done(step)],
            Self::Done(_) => Vec::new(),
            Self::Failed { step, class } => {
                class.map(Symbol::Class).into_iter().chain([Symbol::Failed(step)]).collect()
            }
            Self::Success => vec![Symbol::Success],
        }
    }

    /// Returns all messages.
    pub fn all() -> impl Iterator<Item = Self> {
        let done = BeaconStep::WITH_END.into_iter().map(Self::Done);
        let classes = || Class::ALL.into_iter().map(Some).chain([None]);
        let failed = BeaconStep::ALL
            .into_iter()
            .flat_map(move |step| classes().map(move |class| Self::Failed { step, class }));
        [Self::Started, Self::Success].into_iter().chain(done).chain(failed)
    }
}
