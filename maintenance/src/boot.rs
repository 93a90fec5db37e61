//! The configuration of the two boot loaders, and the kernel's command line.
//!
//! GRUB reads `grub.cfg` of the FAT image and finds its own image by a file whose name has a digest: another medium in the machine
//! may have a kernel too. The same file is in the ISO tree, because some firmware shows GRUB the CD only.

/// The command line of every kernel of an image. `raid=noautodetect`: arrays on the disks of a machine are not assembled.
const COMMAND_LINE: &str = "console=tty0 console=ttyS0,115200 panic=30 raid=noautodetect quiet";

/// The kernel's command line with the words of an operator.
///
/// # Errors
/// A sentence: a sign in it means something to a boot loader.
pub(crate) fn command_line(more: &str) -> Result<String, String> {
    let allowed = |sign: char| sign.is_ascii_alphanumeric() || " =,.:/_-+@".contains(sign);
    if let Some(sign) = more.chars().find(|sign| !allowed(*sign)) {
        return Err(format!("the kernel's command line cannot have {sign:?}"));
    }
    let words: Vec<&str> =
        COMMAND_LINE.split(' ').chain(more.split(' ')).filter(|word| !word.is_empty()).collect();
    // The limit of the kernel for this architecture is 2048, less what a boot loader adds.
    Some(words.join(" "))
        .filter(|line| line.len() < 1800)
        .ok_or_else(|| "the kernel's command line is too long".to_owned())
}

/// The configuration of GRUB. `marker` is a path of this image only.
pub(crate) fn grub(marker: &str, command_line: &str) -> String {
    format!(
        "search --no-floppy --file --set=root /{marker}\n\
         linux /boot/vmlinuz {command_line}\n\
         initrd /boot/initrd\n\
         boot\n"
    )
}

/// The configuration of ISOLINUX.
pub(crate) fn isolinux(command_line: &str) -> String {
    format!(
        "default shoal\nprompt 0\ntimeout 0\nlabel shoal\n  kernel /boot/vmlinuz\n  initrd /boot/initrd\n  append {command_line}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_adds_words_and_no_commands() {
        assert!(command_line("console=ttyS1,57600").unwrap().ends_with("quiet console=ttyS1,57600"));
        for bad in ["a\nb", "a;b", "$x", "'a'", "{", "\"a\""] {
            assert!(command_line(bad).is_err(), "{bad}");
        }
        assert!(command_line(&"a ".repeat(1000)).is_err());
    }
}
