//! The parts of a machine that a BMC shows, and their paths.

use super::config::SimBmcConfig;

/// A part of the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Processors,
    Processor(usize),
    MemoryAll,
    Memory(usize),
    StorageAll,
    Storage,
    Drive(usize),
    Interfaces,
    Interface(usize),
    PowerSubsystem,
    PowerSupplies,
    PowerSupply(usize),
}

/// The parts of a machine that its BMC shows.
pub(super) fn all(config: &SimBmcConfig) -> Vec<Part> {
    let hardware = &config.hardware;
    let mut all = vec![Part::Processors, Part::MemoryAll, Part::StorageAll, Part::Storage, Part::Interfaces];
    all.extend((0..hardware.processors).map(Part::Processor));
    all.extend((0..=hardware.memory_modules).map(Part::Memory));
    all.extend((0..hardware.drives.len()).map(Part::Drive));
    all.extend((0..hardware.interfaces).map(Part::Interface));
    if config.service.chassis {
        all.extend([Part::PowerSubsystem, Part::PowerSupplies]);
        all.extend((0..hardware.power_supplies).map(Part::PowerSupply));
    }
    all
}

/// The path of a part below its parent.
pub(super) fn path(part: Part) -> String {
    match part {
        Part::Processors => "Processors".to_owned(),
        Part::Processor(index) => format!("Processors/CPU{index}"),
        Part::MemoryAll => "Memory".to_owned(),
        Part::Memory(index) => format!("Memory/DIMM{index}"),
        Part::StorageAll => "Storage".to_owned(),
        Part::Storage => "Storage/1".to_owned(),
        Part::Drive(index) => format!("Storage/1/Drives/{index}"),
        Part::Interfaces => "EthernetInterfaces".to_owned(),
        Part::Interface(index) => format!("EthernetInterfaces/{index}"),
        Part::PowerSubsystem => "PowerSubsystem".to_owned(),
        Part::PowerSupplies => "PowerSubsystem/PowerSupplies".to_owned(),
        Part::PowerSupply(index) => format!("PowerSubsystem/PowerSupplies/PSU{index}"),
    }
}

/// Whether a part is below the chassis.
pub(super) fn is_of_chassis(part: Part) -> bool {
    matches!(part, Part::PowerSubsystem | Part::PowerSupplies | Part::PowerSupply(_))
}
