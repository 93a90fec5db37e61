use std::cell::RefCell;

use super::*;

/// A disk in memory with the states of the security feature set.
struct Drive {
    state: RefCell<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    is_frozen: bool,
    is_locked: bool,
    has_enhanced: bool,
    password: Option<Vec<u8>>,
    is_prepared: bool,
    is_erased: bool,
    /// Power is lost before the command with this number.
    cut: Option<usize>,
    /// ERASE UNIT ends with an error.
    is_broken: bool,
    commands: Vec<u8>,
}

impl Drive {
    fn new(state: State) -> Self {
        Self { state: RefCell::new(state) }
    }

    /// Cuts the power and gives it back: a disk with a password is locked.
    fn restart(&self) {
        let mut state = self.state.borrow_mut();
        state.is_locked = state.password.is_some();
        state.is_prepared = false;
        state.cut = None;
        state.commands.clear();
    }

    fn identify(state: &State, block: &mut [u8; SECTOR]) {
        let mut set =
            |word: usize, value: u16| block[2 * word..2 * word + 2].copy_from_slice(&value.to_le_bytes());
        set(82, 0b10);
        set(89, 30);
        set(90, 0x8000 | 300);
        let bits =
            [true, state.password.is_some(), state.is_locked, state.is_frozen, false, state.has_enhanced];
        set(128, bits.iter().enumerate().map(|(number, bit)| u16::from(*bit) << number).sum());
    }
}

impl AtaPort for Drive {
    fn send(&self, command: u8, data: Data<'_>, _: Duration) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.cut.is_some_and(|cut| state.commands.len() >= cut) {
            return Err(io::Error::other("power lost"));
        }
        state.commands.push(command);
        let refused = || Err(io::Error::other("aborted"));
        let given = match &data {
            Data::Out(block) => {
                Some(block[2..34].iter().copied().take_while(|byte| *byte != 0).collect::<Vec<u8>>())
            }
            _ => None,
        };
        if command != IDENTIFY && state.is_frozen {
            return refused();
        }
        let matches = state.password.is_some() && state.password == given;
        match (command, data) {
            (IDENTIFY, Data::In(block)) => Self::identify(&state, block),
            (SET_PASSWORD, _) if !state.is_locked => state.password = given,
            (UNLOCK, _) if matches => state.is_locked = false,
            (DISABLE_PASSWORD, _) if matches && !state.is_locked => state.password = None,
            (ERASE_PREPARE, Data::None) => {
                state.is_prepared = true;
                return Ok(());
            }
            (ERASE_UNIT, Data::Out(block)) if state.is_prepared && matches && !state.is_broken => {
                if block[0] & 0b10 != 0 && !state.has_enhanced {
                    return refused();
                }
                state.is_erased = true;
                state.password = None;
            }
            _ => {
                state.is_prepared = false;
                return refused();
            }
        }
        state.is_prepared = false;
        Ok(())
    }
}

#[test]
fn a_disk_is_erased_by_its_strongest_command_and_keeps_no_password() {
    for has_enhanced in [false, true] {
        let drive = Drive::new(State { has_enhanced, ..State::default() });
        let disk = AtaDisk::new(&drive);
        assert_eq!(disk.prepare(), Ok(None));
        let offered = disk.offered().unwrap();
        assert_eq!(offered.contains(&EraseMethod::AtaSecureEraseEnhanced), has_enhanced);
        disk.erase(offered[0]).unwrap();
        let state = drive.state.borrow();
        assert!(state.is_erased && state.password.is_none(), "{state:?}");
        let prepare = state.commands.iter().position(|command| *command == ERASE_PREPARE).unwrap();
        assert_eq!(state.commands[prepare + 1], ERASE_UNIT, "nothing may be between the two");
    }
}

#[test]
fn power_lost_before_every_command_leaves_a_disk_that_the_next_run_unlocks_and_erases() {
    for cut in 0..8 {
        let drive = Drive::new(State { cut: Some(cut), ..State::default() });
        let run = || {
            let disk = AtaDisk::new(&drive);
            disk.prepare()?;
            let method = disk.offered()?[0];
            disk.erase(method).map_err(|source| source.to_string())
        };
        let first = run();
        drive.restart();
        run().unwrap_or_else(|reason| panic!("cut {cut}: first {first:?}, then {reason}"));
        let state = drive.state.borrow();
        assert!(state.is_erased && state.password.is_none() && !state.is_locked, "cut {cut}: {state:?}");
    }
}

#[test]
fn a_frozen_disk_and_one_with_a_foreign_password_are_not_changed() {
    let frozen = Drive::new(State { is_frozen: true, ..State::default() });
    let reason = AtaDisk::new(&frozen).offered().unwrap_err();
    assert!(reason.contains("froze"), "{reason}");
    assert_eq!(frozen.state.borrow().commands, [IDENTIFY]);

    let foreign = State { password: Some(b"other".to_vec()), ..State::default() };
    let open = Drive::new(foreign.clone());
    assert!(AtaDisk::new(&open).offered().unwrap_err().contains("password"));
    let locked = Drive::new(State { is_locked: true, ..foreign });
    let reason = AtaDisk::new(&locked).prepare().unwrap_err();
    assert!(reason.contains("not the one of an erase"), "{reason}");
    for drive in [open, locked] {
        assert!(!drive.state.borrow().is_erased && drive.state.borrow().password.is_some());
    }
}

#[test]
fn a_disk_that_refuses_the_erase_keeps_no_password() {
    let drive = Drive::new(State { is_broken: true, ..State::default() });
    let refused = AtaDisk::new(&drive).erase(EraseMethod::AtaSecureErase).unwrap_err();
    assert!(refused.to_string().contains("aborted"), "{refused}");
    assert!(drive.state.borrow().password.is_none());
}

#[test]
fn the_time_of_an_erase_is_the_one_of_the_disk_with_a_margin() {
    let minutes = |word: u16| limit(word).as_secs() / 60;
    assert_eq!((minutes(30), minutes(0x8000 | 300)), (60 + 60, 600 + 60));
    for longer in [0, 0xff, 0xffff] {
        assert_eq!(limit(longer), LONGEST, "{longer:#x}");
    }
    // sg_io_hdr counts milliseconds in 32 bits.
    assert!(LONGEST.as_millis() < u128::from(u32::MAX) && minutes(0xfffe) * 60_000 < u64::from(u32::MAX));
}

#[test]
fn the_request_has_the_form_of_the_kernel_and_the_command_that_of_sat() {
    assert_eq!(size_of::<SgIoHeader>(), 88);
    assert_eq!(std::mem::offset_of!(SgIoHeader, data), 16);
    assert_eq!(std::mem::offset_of!(SgIoHeader, timeout_ms), 40);
    assert_eq!(std::mem::offset_of!(SgIoHeader, status), 64);
    let mut block = [0; SECTOR];
    let identify = pass_through(IDENTIFY, &Data::In(&mut block));
    assert_eq!(identify, [0x85, 8, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0]);
    assert_eq!(pass_through(ERASE_PREPARE, &Data::None)[..7], [0x85, 6, 0, 0, 0, 0, 0]);
    assert_eq!(pass_through(ERASE_UNIT, &Data::Out(&block))[..7], [0x85, 10, 6, 0, 0, 0, 1]);
    assert_eq!(sense_of(&[0x72; SENSE]), (2, 0x72));
}

#[test]
fn a_file_that_is_no_disk_is_refused_by_the_kernel() {
    let (_folder, path) = crate::test_kit::disk_image(4096, 0);
    let file = File::open(path).unwrap();
    let refused = file.send(IDENTIFY, Data::None, SHORT).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOTTY.raw_os_error()));
}
