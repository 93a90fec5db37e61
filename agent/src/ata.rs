//! The security commands of an ATA disk, by the kernel's SCSI pass-through (`scsi/sg.h`, SAT: ATA PASS-THROUGH (16)).
//!
//! ```text
//!              IDENTIFY DEVICE (ECh)   word 82, 128: security supported, enabled, locked, frozen, enhanced    89, 90: minutes
//!  disabled ── SET PASSWORD (F1h) ──> enabled ── ERASE PREPARE (F3h), ERASE UNIT (F4h) ──> disabled, erased
//!                                        └── power lost ──> locked ── UNLOCK (F2h) ──> enabled
//! ```
//!
//! The password is a constant, so that any later run unlocks a disk whose erase was interrupted; the erase removes it. A disk with
//! another password is left as it is. A frozen disk takes no security command until it loses power; firmware freezes disks when the
//! machine starts.
//!
//! ATA/ATAPI Command Set - 3, 4.18 (security feature set) and 7; SAT-3, 12.2.2.
//!
//! Invariants: no command but IDENTIFY and UNLOCK is sent before the disk was found erasable. A disk on which the erase fails
//! without a loss of power keeps no password, unless it refuses to remove it; then the error names the password.

#![allow(unsafe_code)] // One ioctl; its proof is beside it.

use std::{cell::Cell, ffi::c_void, fs::File, io, marker::PhantomData, os::fd::AsFd, time::Duration};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

use crate::erase::{EraseMethod, OwnErase};

const SECTOR: usize = 512;
const SENSE: usize = 32;
/// The password of an erase: it protects nothing, the command requires one.
const PASSWORD: &[u8] = b"shoal";
const SHORT: Duration = Duration::from_secs(15);
/// The time for a disk that names none, or more than the field holds.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// A disk that needs longer than it says is given this much more.
const MARGIN: Duration = Duration::from_secs(3600);

/// The 512-byte block of data of a command, with its direction.
#[derive(Debug)]
pub enum Data<'data> {
    /// The command has no data.
    None,
    /// The disk fills the block.
    In(&'data mut [u8; SECTOR]),
    /// The disk reads the block.
    Out(&'data [u8; SECTOR]),
}

/// A disk that takes ATA commands.
pub trait AtaPort {
    /// Sends a command and waits for its end.
    ///
    /// # Errors
    /// Returns the error of the operating system or the refusal of the disk.
    fn send(&self, command: u8, data: Data<'_>, limit: Duration) -> io::Result<()>;
}

const IDENTIFY: u8 = 0xec;
const SET_PASSWORD: u8 = 0xf1;
const UNLOCK: u8 = 0xf2;
const ERASE_PREPARE: u8 = 0xf3;
const ERASE_UNIT: u8 = 0xf4;
const DISABLE_PASSWORD: u8 = 0xf6;

/// The state of a disk's ATA security, from its Identify data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    is_supported: bool,
    is_enabled: bool,
    is_locked: bool,
    is_frozen: bool,
    /// Whether the disk refuses more passwords, because too many wrong ones came since it got power.
    is_expired: bool,
    is_enhanced_supported: bool,
    normal_limit: Duration,
    enhanced_limit: Duration,
}

impl Security {
    /// Reads the words of the IDENTIFY DEVICE data.
    fn parse(identify: &[u8; SECTOR]) -> Self {
        let word = |number: usize| u16::from_le_bytes([identify[2 * number], identify[2 * number + 1]]);
        let status = word(128);
        let bit = |number: u32| status >> number & 1 == 1;
        Self {
            is_supported: word(82) & 0b10 != 0 && bit(0),
            is_enabled: bit(1),
            is_locked: bit(2),
            is_frozen: bit(3),
            is_expired: bit(4),
            is_enhanced_supported: bit(5),
            normal_limit: limit(word(89)),
            enhanced_limit: limit(word(90)),
        }
    }

    /// Returns the erases that the disk does, the strongest first.
    fn erases(&self) -> Result<Vec<EraseMethod>, &'static str> {
        if !self.is_supported {
            return Err("the disk has no ATA security feature set");
        }
        if self.is_frozen {
            return Err(
                "the firmware froze the security of the disk; pull and insert the disk while the machine is on",
            );
        }
        if self.is_locked || self.is_expired {
            return Err("the disk is locked");
        }
        Ok(if self.is_enhanced_supported {
            vec![EraseMethod::AtaSecureEraseEnhanced, EraseMethod::AtaSecureErase]
        } else {
            vec![EraseMethod::AtaSecureErase]
        })
    }
}

/// The time of an erase: words 89 and 90 count two minutes, in 15 bits when bit 15 is set and in 8 bits otherwise. The highest
/// number means longer.
fn limit(word: u16) -> Duration {
    let (count, most) = if word >> 15 == 1 { (word & 0x7fff, 0x7fff) } else { (word & 0xff, 0xff) };
    if count == 0 || count == most { LONGEST } else { Duration::from_secs(u64::from(count) * 120) + MARGIN }
}

/// An ATA disk that erases itself.
pub struct AtaDisk<'port> {
    port: &'port dyn AtaPort,
    /// Whether this run has set a password.
    has_set: Cell<bool>,
}

impl<'port> AtaDisk<'port> {
    /// Creates a disk that takes its commands from `port`.
    pub fn new(port: &'port dyn AtaPort) -> Self {
        Self { port, has_set: Cell::new(false) }
    }

    /// Whether the disk has a password, as far as it says.
    fn is_enabled(&self) -> bool {
        self.security().map(|security| security.is_enabled).unwrap_or(true)
    }

    fn security(&self) -> io::Result<Security> {
        let mut identify = [0; SECTOR];
        self.port.send(IDENTIFY, Data::In(&mut identify), SHORT)?;
        Ok(Security::parse(&identify))
    }

    /// Sends a command whose block has the password. `is_enhanced` is of ERASE UNIT.
    fn with_password(&self, command: u8, is_enhanced: bool, limit: Duration) -> io::Result<()> {
        let mut block = [0; SECTOR];
        // Word 0: bit 0 zero for the user password, bit 1 for an enhanced erase; a security level of zero is `high`.
        block[0] = u8::from(is_enhanced) << 1;
        block[2..2 + PASSWORD.len()].copy_from_slice(PASSWORD);
        self.port.send(command, Data::Out(&block), limit)
    }

    fn erase_unit(&self, is_enhanced: bool, limit: Duration) -> io::Result<()> {
        self.port.send(ERASE_PREPARE, Data::None, SHORT)?;
        self.with_password(ERASE_UNIT, is_enhanced, limit)
    }
}

impl OwnErase for AtaDisk<'_> {
    /// Unlocks a disk that an interrupted erase left locked.
    fn prepare(&self) -> Result<Option<String>, String> {
        // A disk that does not answer is erased by other means.
        let Ok(security) = self.security() else { return Ok(None) };
        if !security.is_locked {
            return Ok(None);
        }
        if security.is_frozen {
            return Err("the disk is locked, and the firmware froze its security; pull and insert the disk while the machine is on".to_owned());
        }
        if security.is_expired {
            return Err("the disk is locked and takes no password until it loses power; switch the machine off and on".to_owned());
        }
        self.with_password(UNLOCK, false, SHORT).map_err(|source| {
            format!("the disk is locked with a password that is not the one of an erase by Shoal ({source}); unlock it by its PSID or password")
        })?;
        Ok(Some("the disk was locked by an erase that was interrupted; it is unlocked".to_owned()))
    }

    fn offered(&self) -> Result<Vec<EraseMethod>, String> {
        let security = self.security().map_err(|source| format!("IDENTIFY DEVICE: {source}"))?;
        let erases = security.erases()?;
        if security.is_enabled {
            // Sent with the right password it changes nothing; a wrong one is refused.
            self.with_password(DISABLE_PASSWORD, false, SHORT)
                .map_err(|_| "the disk has a password that is not the one of an erase by Shoal".to_owned())?;
        }
        Ok(erases)
    }

    fn erase(&self, method: EraseMethod) -> io::Result<()> {
        let security = self.security()?;
        let (is_enhanced, limit) = match method {
            EraseMethod::AtaSecureEraseEnhanced => (true, security.enhanced_limit),
            EraseMethod::AtaSecureErase => (false, security.normal_limit),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        // A command whose end is not seen may have been carried out.
        self.has_set.set(true);
        self.with_password(SET_PASSWORD, false, SHORT)?;
        let erased = self.erase_unit(is_enhanced, limit);
        // The erase removes the password. After a failure it is removed here, or the disk would be locked when it loses power.
        let is_enabled = self.is_enabled();
        let removed = self.finish();
        match erased {
            Ok(()) if is_enabled => Err(io::Error::other("the disk kept its password, so it did not erase")),
            Ok(()) => Ok(()),
            Err(source) => Err(match removed {
                Ok(()) => source,
                Err(kept) => io::Error::other(format!("{source}; {kept}")),
            }),
        }
    }

    /// Removes the password of this run from a disk that still has it.
    fn finish(&self) -> Result<(), String> {
        if !self.has_set.get() || !self.is_enabled() {
            return Ok(());
        }
        self.with_password(DISABLE_PASSWORD, false, SHORT).map_err(|source| {
            let password = String::from_utf8_lossy(PASSWORD);
            format!(
                "the disk keeps the password \"{password}\" and locks itself when it loses power; remove it with \
                 `hdparm --security-disable {password} DEVICE` ({source})"
            )
        })
    }
}

/// `struct sg_io_hdr`.
#[repr(C)]
struct SgIoHeader {
    interface_id: i32,
    direction: i32,
    command_length: u8,
    sense_length: u8,
    iovec_count: u16,
    data_length: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    residual: i32,
    duration_ms: u32,
    info: u32,
}

const TO_DEVICE: i32 = -2;
const FROM_DEVICE: i32 = -3;
const NO_DATA: i32 = -1;
const SG_IO: Opcode = 0x2285;

/// The request and the buffers that it points to.
struct PassThrough<'buffers> {
    header: SgIoHeader,
    buffers: PhantomData<&'buffers mut [u8]>,
}

// SAFETY: `as_ptr` returns a valid pointer to a `SgIoHeader` for the whole call, and the output is only the returned number.
unsafe impl Ioctl for &mut PassThrough<'_> {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        SG_IO
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.header).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<Self::Output> {
        Ok(())
    }
}

/// The block of an ATA PASS-THROUGH (16) command: protocol, direction and one block of 512 bytes, or none.
fn pass_through(command: u8, data: &Data<'_>) -> [u8; 16] {
    let mut block = [0; 16];
    block[0] = 0x85;
    let (protocol, transfer, count) = match data {
        Data::None => (3, 0, 0),
        // T_DIR from the device, BYT_BLOK, T_LENGTH in the count.
        Data::In(_) => (4, 0b1110, 1),
        Data::Out(_) => (5, 0b0110, 1),
    };
    block[1] = protocol << 1;
    block[2] = transfer;
    block[6] = count;
    block[14] = command;
    block
}

impl AtaPort for File {
    fn send(&self, command: u8, data: Data<'_>, limit: Duration) -> io::Result<()> {
        let cdb = pass_through(command, &data);
        let mut sense = [0_u8; SENSE];
        let (direction, pointer, data_length) = match data {
            Data::None => (NO_DATA, std::ptr::null_mut(), 0),
            Data::In(block) => (FROM_DEVICE, block.as_mut_ptr().cast::<c_void>(), SECTOR as u32),
            // The kernel only reads what goes to the device.
            Data::Out(block) => (TO_DEVICE, block.as_ptr().cast_mut().cast::<c_void>(), SECTOR as u32),
        };
        let mut request = PassThrough {
            header: SgIoHeader {
                interface_id: i32::from(b'S'),
                direction,
                command_length: cdb.len() as u8,
                sense_length: SENSE as u8,
                iovec_count: 0,
                data_length,
                data: pointer,
                command: cdb.as_ptr(),
                sense: sense.as_mut_ptr(),
                timeout_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
                flags: 0,
                pack_id: 0,
                user: std::ptr::null_mut(),
                status: 0,
                masked_status: 0,
                message_status: 0,
                sense_written: 0,
                host_status: 0,
                driver_status: 0,
                residual: 0,
                duration_ms: 0,
                info: 0,
            },
            buffers: PhantomData,
        };
        // SAFETY: The opcode is that of SG_IO, whose argument is `struct sg_io_hdr`, and `SgIoHeader` has its fields, order and size
        // (checked by a test). `command`, `sense` and `data` point to buffers of the given lengths that live, borrowed by this function,
        // until the call returns; the kernel writes at most `sense_length` bytes to `sense`, and to `data` only when the direction is from
        // the device, for which it is a mutable borrow. A file that is no SCSI disk refuses the request with ENOTTY and reads nothing.
        unsafe { rustix::ioctl::ioctl(self.as_fd(), &mut request) }?;
        let header = &request.header;
        match (header.status, header.host_status, header.driver_status & 0x0f) {
            (0, 0, 0) => Ok(()),
            // DID_TIME_OUT
            (_, 3, _) => Err(io::Error::other(format!("command {command:#04x} did not end in time"))),
            (status, host, driver) => {
                let (key, code) = sense_of(&sense);
                Err(io::Error::other(format!(
                    "the disk refused command {command:#04x}: status {status:#04x}, host {host:#06x}, driver {driver:#04x}, \
                     sense {key:#03x}/{code:#04x}"
                )))
            }
        }
    }
}

/// The sense key and the additional code, of the descriptor and of the fixed format.
fn sense_of(sense: &[u8; SENSE]) -> (u8, u8) {
    match sense[0] & 0x7f {
        0x72 | 0x73 => (sense[1] & 0x0f, sense[2]),
        _ => (sense[2] & 0x0f, sense[12]),
    }
}

#[cfg(test)]
#[path = "ata/tests.rs"]
mod tests;
