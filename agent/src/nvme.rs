//! The two commands of an NVMe drive that a secure erase needs, by the kernel's pass-through (`linux/nvme_ioctl.h`).
//!
//! ```text
//!  Identify (06h)     controller: Format supported, crypto erase, whether one Format meets all namespaces
//!                     namespace:  the LBA format in use, which Format must keep
//!                     list 10h:   the namespaces of the drive, also those that are attached to no controller
//!  Format NVM (80h)   SES 2: crypto erase   SES 1: erase of user data
//! ```
//!
//! NVM Express Base Specification 2.0: 5.17 (Identify), 5.14 (Format NVM).
//!
//! Invariant: a drive whose Format meets all namespaces is formatted only if it has one namespace. The others are other disks.

#![allow(unsafe_code)] // One ioctl; its proof is beside it.

use std::{
    ffi::c_void,
    fs::File,
    io,
    marker::PhantomData,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use crate::erase::{EraseMethod, OwnErase};

const IDENTIFY: u8 = 0x06;
const FORMAT_NVM: u8 = 0x80;
/// The list of the namespaces that exist (CNS of Identify).
const ALLOCATED: u32 = 0x10;
const PAGE: usize = 4096;
/// Formatting a large drive can take hours; crypto erase takes seconds.
const FORMAT_LIMIT: Duration = Duration::from_secs(4 * 3600);
const IDENTIFY_LIMIT: Duration = Duration::from_secs(10);

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct PassThrough {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dword2: u32,
    dword3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    dwords: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// A command and the buffer that its data is written to.
struct AdminCommand<'buffer> {
    fields: PassThrough,
    buffer: PhantomData<&'buffer mut [u8; PAGE]>,
}

impl<'buffer> AdminCommand<'buffer> {
    fn new(opcode: u8, namespace: u32, limit: Duration, buffer: Option<&'buffer mut [u8; PAGE]>) -> Self {
        let (address, data_length) = match buffer {
            Some(buffer) => (buffer.as_mut_ptr() as u64, PAGE as u32),
            None => (0, 0),
        };
        let timeout_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let fields =
            PassThrough { opcode, namespace, address, data_length, timeout_ms, ..PassThrough::default() };
        Self { fields, buffer: PhantomData }
    }

    /// Sends the command and waits for its end.
    ///
    /// # Errors
    /// Returns the error of the operating system, or the status of the drive.
    fn send(self, device: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: The opcode is that of NVME_IOCTL_ADMIN_CMD, whose argument is `struct nvme_passthru_cmd`, and `PassThrough` has its
        // fields, order and size (checked by a test). The address is that of a buffer of `data_length` bytes which `self` borrows
        // mutably until the call returns, or is zero with a length of zero; the kernel writes at most `data_length` bytes there. On a
        // file that is no NVMe device the kernel returns ENOTTY and reads nothing.
        let status = unsafe { rustix::ioctl::ioctl(device, self) }?;
        match status {
            0 => Ok(()),
            status => Err(io::Error::other(format!("the drive refused it with NVMe status {status:#06x}"))),
        }
    }
}

// SAFETY: `as_ptr` returns a valid pointer to a `PassThrough` for the whole call, the opcode encodes its size, and the output is only
// the returned number.
unsafe impl Ioctl for AdminCommand<'_> {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<PassThrough>(b'N', 0x41)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.fields).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<Self::Output> {
        Ok(out)
    }
}

/// The way in which a Format erases the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatErase {
    /// The key of the drive's encryption is replaced.
    Crypto,
    /// All user data is erased.
    UserData,
}

/// The abilities of a drive that matter for Format, from its Identify data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatSupport {
    /// Format NVM is supported.
    format: bool,
    /// Format can erase by replacing the key.
    crypto: bool,
    /// A Format, or its erase, meets all namespaces of the drive.
    all_namespaces: bool,
    /// Namespaces can be made and detached, so that there may be some that are no disk of the machine.
    managed: bool,
}

impl FormatSupport {
    /// Reads OACS and FNA of the Identify Controller data.
    fn parse(identify: &[u8; PAGE]) -> Self {
        let fna = identify[524];
        let oacs = identify[256];
        Self {
            format: oacs & 0b10 != 0,
            crypto: fna & 0b100 != 0,
            all_namespaces: fna & 0b011 != 0,
            managed: oacs & 0b1000 != 0,
        }
    }

    /// Returns the erases that this drive does, the strongest first. `others`: the drive has another namespace.
    ///
    /// # Errors
    /// Returns a sentence when the drive does none.
    pub fn erases(&self, others: bool) -> Result<Vec<FormatErase>, &'static str> {
        if !self.format {
            return Err("the drive has no Format command");
        }
        if self.all_namespaces && others {
            return Err("its Format would erase the other namespaces of the drive too");
        }
        Ok(if self.crypto {
            vec![FormatErase::Crypto, FormatErase::UserData]
        } else {
            vec![FormatErase::UserData]
        })
    }
}

/// The LBA format in use, as Format wants it in its dword 10, from FLBAS of the Identify Namespace data.
fn lba_format(flbas: u8) -> u32 {
    let (low, high, metadata) =
        (u32::from(flbas & 0b1111), u32::from(flbas >> 5 & 0b11), u32::from(flbas >> 4 & 1));
    low | high << 12 | metadata << 4
}

/// Dword 10 of Format NVM: the LBA format stays, protection information stays off.
fn format_dword(flbas: u8, erase: FormatErase) -> u32 {
    let setting = match erase {
        FormatErase::UserData => 1,
        FormatErase::Crypto => 2,
    };
    lba_format(flbas) | setting << 9
}

/// Reads what the drive of a namespace can do.
///
/// # Errors
/// Returns the error of the operating system; for a disk that is no NVMe namespace `ENOTTY`.
pub fn support(namespace: &File) -> io::Result<FormatSupport> {
    Ok(FormatSupport::parse(&*identify(namespace, 0, 1)?))
}

/// Formats a namespace with an erase and its present LBA format. `number` is the number of the namespace.
///
/// # Errors
/// Returns the error of the operating system or the refusal of the drive.
pub fn format(namespace: &File, number: u32, erase: FormatErase) -> io::Result<()> {
    let identify = identify(namespace, number, 0)?;
    // DPS: a namespace with protection information would lose it.
    if identify[29] & 0b111 != 0 {
        return Err(io::Error::other("the namespace has protection information, which Format would remove"));
    }
    let mut command = AdminCommand::new(FORMAT_NVM, number, FORMAT_LIMIT, None);
    command.fields.dwords[0] = format_dword(identify[26], erase);
    command.send(namespace.as_fd())
}

/// A namespace of a drive, as a disk that erases itself.
#[derive(Debug)]
pub struct NvmeNamespace<'disk> {
    /// The open block device.
    pub device: &'disk File,
    /// The number of the namespace.
    pub number: u32,
    /// Whether another namespace of the drive is a disk of this machine.
    pub others: bool,
}

impl OwnErase for NvmeNamespace<'_> {
    fn offered(&self) -> Result<Vec<EraseMethod>, String> {
        let support = support(self.device).map_err(|source| format!("Identify: {source}"))?;
        let others = self.others
            || support.all_namespaces && support.managed && {
                let list = identify(self.device, 0, ALLOCATED).map_err(|source| {
                    format!(
                        "its Format would erase all of its namespaces, and it does not list them: {source}"
                    )
                })?;
                others_of(self.number, &list)
            };
        let erases = support.erases(others)?;
        Ok(erases
            .into_iter()
            .map(|erase| match erase {
                FormatErase::Crypto => EraseMethod::NvmeFormatCrypto,
                FormatErase::UserData => EraseMethod::NvmeFormat,
            })
            .collect())
    }

    fn erase(&self, method: EraseMethod) -> io::Result<()> {
        let erase = match method {
            EraseMethod::NvmeFormatCrypto => FormatErase::Crypto,
            EraseMethod::NvmeFormat => FormatErase::UserData,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        format(self.device, self.number, erase)
    }
}

/// Whether a list of namespaces, which a zero ends, has another one than `number`.
fn others_of(number: u32, list: &[u8; PAGE]) -> bool {
    let (numbers, _) = list.as_chunks::<4>();
    let mut listed = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).take_while(|listed| *listed != 0);
    listed.any(|listed| listed != number)
}

fn identify(namespace: &File, number: u32, structure: u32) -> io::Result<Box<[u8; PAGE]>> {
    let mut data = Box::new([0; PAGE]);
    let mut command = AdminCommand::new(IDENTIFY, number, IDENTIFY_LIMIT, Some(&mut data));
    command.fields.dwords[0] = structure;
    command.send(namespace.as_fd())?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_has_the_size_and_the_request_the_number_of_the_kernel() {
        assert_eq!(size_of::<PassThrough>(), 72);
        assert_eq!(std::mem::offset_of!(PassThrough, address), 24);
        assert_eq!(std::mem::offset_of!(PassThrough, dwords), 40);
        // NVME_IOCTL_ADMIN_CMD, as strace prints it.
        assert_eq!(AdminCommand::new(IDENTIFY, 0, IDENTIFY_LIMIT, None).opcode(), 0xc048_4e41);
    }

    #[test]
    fn a_format_that_meets_all_namespaces_is_refused_while_there_are_others() {
        let mut identify = [0; PAGE];
        assert!(FormatSupport::parse(&identify).erases(false).is_err());
        identify[256] = 0b10;
        assert_eq!(FormatSupport::parse(&identify).erases(true), Ok(vec![FormatErase::UserData]));
        identify[524] = 0b101;
        assert!(FormatSupport::parse(&identify).erases(true).unwrap_err().contains("other namespaces"));
        let alone = FormatSupport::parse(&identify).erases(false);
        assert_eq!(alone, Ok(vec![FormatErase::Crypto, FormatErase::UserData]));
    }

    #[test]
    fn a_namespace_that_is_attached_to_no_controller_is_another_one() {
        let list = |numbers: &[u32]| {
            let mut page = [0; PAGE];
            for (number, place) in numbers.iter().zip(page.chunks_mut(4)) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            page
        };
        assert!(!others_of(1, &list(&[1])) && !others_of(1, &list(&[])));
        assert!(others_of(1, &list(&[1, 7])) && others_of(2, &list(&[1, 2])));
        let full: Vec<u32> = (1..=1024).collect();
        assert!(others_of(1, &list(&full)), "a list without an end");
    }

    #[test]
    fn format_keeps_the_lba_format() {
        assert_eq!(format_dword(0x03, FormatErase::UserData), 0x203);
        assert_eq!(format_dword(0x31, FormatErase::Crypto), 0x1411);
    }

    #[test]
    fn a_file_that_is_no_drive_is_refused_by_the_kernel() {
        let (_folder, path) = crate::test_kit::disk_image(4096, 0);
        let refused = support(&File::open(path).unwrap()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOTTY.raw_os_error()));
    }
}
