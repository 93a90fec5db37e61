//! Examples in the help of each command, in the manual pages and in docs/cli.md.
//!
//! Invariant, held by tests: every command that does something has an example, and every example is a command line that the
//! program accepts.

use clap::Command;

/// The examples of a command by its path. In the order of `shoal --help`.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    ("serve", &["shoal serve --data /var/lib/shoal", "shoal serve --config /etc/shoal/shoal.toml"]),
    ("demo", &["shoal demo", "shoal demo --servers 5 --fail-one", "shoal demo --vm --console"]),
    ("sim", &["shoal sim --servers 3", "shoal sim --list"]),
    ("sim-bmc show", &["shoal sim-bmc show --admin http://127.0.0.1:9000"]),
    ("sim-bmc faults", &["shoal sim-bmc faults SIM-1"]),
    ("sim-bmc fault", &["shoal sim-bmc fault SIM-1 --fault fault.json"]),
    ("sim-bmc clear", &["shoal sim-bmc clear SIM-1"]),
    ("sim-bmc journal", &["shoal sim-bmc journal SIM-1"]),
    ("sim-bmc restart", &["shoal sim-bmc restart SIM-1"]),
    ("sim-bmc certificate", &["shoal sim-bmc certificate SIM-1"]),
    ("agent", &["shoal agent -- --help", "shoal agent -- --medium task.iso --report-limit 60"]),
    ("vm-connect", &["shoal vm-connect 127.0.0.1:8443"]),
    ("selftest", &["shoal selftest", "shoal selftest --faults storm --seeds 20"]),
    (
        "server add",
        &[
            "shoal server add XF-2041 --bmc-address 192.0.2.41 --bmc-user admin --bmc-password-file bmc.password --label rack=7",
        ],
    ),
    ("server list", &["shoal server list", "shoal server list --watch", "shoal server list -o name"]),
    (
        "server import",
        &[
            "shoal server import servers.csv --bmc-user admin --bmc-password-file bmc.password",
            "shoal server import --range 192.0.2.0/24 --bmc-user admin --bmc-password-file bmc.password --yes",
        ],
    ),
    ("server show", &["shoal server show XF-2041"]),
    (
        "server inventory",
        &[
            "shoal server inventory XF-2041",
            "shoal server inventory XF-2041 --refresh --watch",
            "shoal server inventory -l rack=7 --refresh --yes",
        ],
    ),
    (
        "server power-cycle",
        &[
            "shoal server power-cycle XF-2041 --force --grace 60 --watch",
            "shoal server power-cycle -l rack=7 --yes",
        ],
    ),
    (
        "server reset-bmc",
        &["shoal server reset-bmc XF-2041 --watch", "shoal server reset-bmc -l rack=7 --yes"],
    ),
    ("server bios show", &["shoal server bios show XF-2041", "shoal server bios show XF-2041 boot hyper"]),
    (
        "server bios set",
        &[
            "shoal server bios set XF-2041 LogicalProc=Disabled --dry-run",
            "shoal server bios set XF-2041 BootMode=Uefi --boot-order Boot0003,Boot0001 --watch",
            "shoal server bios set XF-2041 --from-file bios.json --no-restart",
            "shoal server bios set -l rack=7 BootMode=Uefi --yes",
        ],
    ),
    ("server conditions", &["shoal server conditions XF-2041"]),
    (
        "server update",
        &[
            "shoal server update XF-2041 --bmc-address 192.0.2.42 --bmc-password-stdin < bmc.password",
            "shoal server update XF-2041 --label rack=8 --dry-run",
            "shoal server update --filter rack=7 --label owner=storage --yes",
        ],
    ),
    (
        "server maintenance begin",
        &[
            "shoal server maintenance begin XF-2041 --reason 'new memory'",
            "shoal server maintenance begin -l rack=7 --reason 'new switch' --yes",
        ],
    ),
    (
        "server maintenance end",
        &["shoal server maintenance end XF-2041", "shoal server maintenance end -l rack=7 --yes"],
    ),
    ("server restored", &["shoal server restored XF-2041"]),
    ("server release", &["shoal server release XF-2041 --jobs end"]),
    (
        "server remove",
        &[
            "shoal server remove XF-2041",
            "shoal server remove XF-2041 --with-history --dry-run",
            "shoal server remove -l rack=7 --yes --expect 12",
        ],
    ),
    (
        "job create",
        &[
            "shoal job create --server XF-2041 --recipe recipe.json --dry-run",
            "shoal job create --server XF-2041 --recipe recipe.json --watch",
            "shoal job create --filter site=a --filter state:free --recipe recipe.json --dry-run",
            "shoal job create --filter site=a --filter state:free --recipe recipe.json --priority 10 --yes --watch",
        ],
    ),
    (
        "job list",
        &[
            "shoal job list --status provisioning --watch",
            "shoal job list --outcome failed --since 24h -o wide",
            "shoal job list -l site=a -o json",
        ],
    ),
    ("job show", &["shoal job show 0192f3a4"]),
    ("job events", &["shoal job events 0192f3a4 --since 10m", "shoal job events 0192f3a4 --follow"]),
    ("job watch", &["shoal job watch 0192f3a4"]),
    ("job explain", &["shoal job explain 0192f3a4"]),
    ("job log", &["shoal job log 0192f3a4"]),
    ("job media-url", &["shoal job media-url 0192f3a4", "shoal job media-url 0192f3a4 -o task.iso"]),
    (
        "job cancel",
        &["shoal job cancel 0192f3a4 --reason 'wrong rack'", "shoal job cancel -l site=a --state waiting"],
    ),
    (
        "job hold",
        &[
            "shoal job hold 0192f3a4 --reason 'the rack is being moved'",
            "shoal job hold -l rack=7 --reason 'new switch' --yes",
        ],
    ),
    ("job resume", &["shoal job resume 0192f3a4", "shoal job resume -l rack=7 --yes"]),
    ("job finish", &["shoal job finish 0192f3a4"]),
    ("job retry", &["shoal job retry 0192f3a4 --watch", "shoal job retry -l site=a --yes --expect 12"]),
    (
        "batch create",
        &[
            "shoal batch create --servers serials.txt --recipe recipe.json --max-parallel 10 --watch",
            "shoal batch create -l site=north --state free --recipe recipe.json --yes",
        ],
    ),
    ("batch list", &["shoal batch list --since 7d --limit 100"]),
    ("batch show", &["shoal batch show 0192f3a4"]),
    ("batch watch", &["shoal batch watch 0192f3a4"]),
    ("batch cancel", &["shoal batch cancel 0192f3a4 --reason 'wrong image'"]),
    ("batch continue", &["shoal batch continue 0192f3a4"]),
    ("batch retry", &["shoal batch retry 0192f3a4 --failed --class installer --watch"]),
    ("top", &["shoal top", "shoal top --once"]),
    (
        "event list",
        &[
            "shoal event list --since 2h --type 'registry.*'",
            "shoal event list --server XF-2041 --watch",
            "shoal event list --job 0192f3a4 --limit 1000 -o json",
        ],
    ),
    (
        "media list",
        &["shoal media list --served --watch", "shoal media list --server XF-2041 --image boot -o json"],
    ),
    (
        "webhook add",
        &["shoal webhook add https://hooks.example.org/shoal --secret-file hook.secret --type run.ended"],
    ),
    ("webhook list", &["shoal webhook list"]),
    ("webhook show", &["shoal webhook show 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    ("webhook remove", &["shoal webhook remove 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    ("webhook disable", &["shoal webhook disable 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    ("webhook enable", &["shoal webhook enable 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    ("webhook test", &["shoal webhook test 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    ("webhook dead-letters", &["shoal webhook dead-letters 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    ("webhook redeliver", &["shoal webhook redeliver 0192f3a4-5b6c-7abc-8def-0123456789ab"]),
    (
        "firmware add",
        &[
            "shoal firmware add BIOS_2.19.bin --vendor contoso --model 'Model 1' --component bios --version 2.19",
        ],
    ),
    ("firmware list", &["shoal firmware list --vendor contoso"]),
    ("firmware show", &["shoal firmware show 1f6a2b"]),
    ("firmware remove", &["shoal firmware remove 1f6a2b"]),
    (
        "firmware plan",
        &[
            "shoal firmware plan XF-2041 --set model-1-2026",
            "shoal firmware plan --filter rack=7 --set model-1-2026",
        ],
    ),
    (
        "firmware drift",
        &[
            "shoal firmware drift",
            "shoal firmware drift --filter rack=7 --set model-1-2026",
            "shoal firmware drift --label ring=stable -o json",
        ],
    ),
    ("firmware history", &["shoal firmware history XF-2041"]),
    (
        "firmware install",
        &[
            "shoal firmware install XF-2041 --set model-1-2026 --watch",
            "shoal firmware install --filter rack=7 --set model-1-2026 --yes",
        ],
    ),
    ("firmware set create", &["shoal firmware set create model-1-2026 --file 1f6a2b --label site=a"]),
    ("firmware set list", &["shoal firmware set list"]),
    ("firmware set show", &["shoal firmware set show model-1-2026"]),
    ("firmware set delete", &["shoal firmware set delete model-1-2026"]),
    ("firmware set match", &["shoal firmware set match --vendor contoso --model 'Model 1'"]),
    ("firmware set import", &["shoal firmware set import /media/usb/firmware"]),
    (
        "bmc probe",
        &["shoal bmc probe XF-2041", "shoal bmc probe XF-2041 --last", "shoal bmc probe -l site=a,rack=7"],
    ),
    (
        "bmc doctor",
        &[
            "shoal bmc doctor XF-2041 --write",
            "shoal bmc doctor XF-2041 --last",
            "shoal bmc doctor -l rack=7",
        ],
    ),
    ("about", &["shoal about", "shoal about --sbom"]),
    ("ca export", &["shoal ca export > ca.pem"]),
    ("controller drain", &["shoal controller drain --reason 'upgrade at noon'"]),
    ("controller undrain", &["shoal controller undrain"]),
    ("controller status", &["shoal controller status"]),
    ("controller ready", &["shoal controller ready", "shoal controller ready --wait 60"]),
    ("controller restored", &["shoal controller restored"]),
    ("controller release", &["shoal controller release --old-controller-is-off --jobs continue"]),
    ("user add", &["shoal user add ann --role operator --password-file ann.password"]),
    ("user list", &["shoal user list"]),
    ("user show", &["shoal user show ann"]),
    (
        "user passwd",
        &[
            "shoal user passwd ann --password-stdin < ann.password",
            "shoal user passwd --user ann --password-file new.password",
        ],
    ),
    ("user role", &["shoal user role ann admin"]),
    ("user disable", &["shoal user disable ann"]),
    ("user enable", &["shoal user enable ann"]),
    ("user confirm", &["shoal user confirm ann"]),
    ("user remove", &["shoal user remove ann"]),
    ("token create", &["shoal token create ci --role operator --label site=a --expires 90d"]),
    ("token list", &["shoal token list"]),
    ("token show", &["shoal token show ci"]),
    ("token revoke", &["shoal token revoke ci"]),
    ("token confirm", &["shoal token confirm ci"]),
    ("token rotate", &["shoal token rotate ci"]),
    (
        "worker",
        &[
            "shoal worker --controller https://controller.example:8443 --ca-file ca.pem --token file:/etc/shoal/worker.token --queue facility-b",
        ],
    ),
    (
        "worker token create",
        &["shoal worker token create facility-b --queue facility-b --expires 365d > worker.token"],
    ),
    ("worker token list", &["shoal worker token list"]),
    ("worker token revoke", &["shoal worker token revoke facility-b"]),
    ("worker list", &["shoal worker list", "shoal worker list --watch"]),
    ("session list", &["shoal session list"]),
    ("session end", &["shoal session end --of ann"]),
    ("whoami", &["shoal whoami", "shoal whoami --user ann"]),
    ("support-bundle", &["shoal support-bundle -o support.tar.gz"]),
    ("log level", &["shoal log level", "shoal log level info,provision=debug", "shoal log level --reset"]),
    ("doctor", &["shoal doctor --data /var/lib/shoal --bmc 192.0.2.41"]),
    ("dashboards export", &["shoal dashboards export /etc/prometheus/shoal"]),
    ("audit list", &["shoal audit list --since 24h --action 'server.*'"]),
    ("audit verify", &["shoal audit verify audit.jsonl"]),
    ("audit export", &["shoal audit export -o audit.jsonl"]),
    ("secret list", &["shoal secret list"]),
    ("secret rotate", &["shoal secret rotate master"]),
    (
        "registry ls",
        &["shoal registry ls", "shoal registry ls --online", "shoal registry ls os-images/debian --online"],
    ),
    (
        "registry delete",
        &["shoal registry delete os-images/debian:12", "shoal registry delete os-images/debian:12 --yes"],
    ),
    ("registry gc", &["shoal registry gc --online --dry-run"]),
    ("registry retain", &["shoal registry retain --online --dry-run"]),
    ("registry scrub", &["shoal registry scrub --online"]),
    ("registry status", &["shoal registry status"]),
    ("registry read-only", &["shoal registry read-only on --reason 'the disk is moved'"]),
    ("registry uploads", &["shoal registry uploads"]),
    ("registry cancel-upload", &["shoal registry cancel-upload 0f8f4c1e"]),
    ("registry pins", &["shoal registry pins"]),
    ("registry rebuild", &["shoal registry rebuild"]),
    ("registry export", &["shoal registry export os-images/debian -o debian.tar --tag 13"]),
    ("registry import", &["shoal registry import /media/usb/debian.tar --repository os-images/debian"]),
    (
        "image add",
        &[
            "shoal image add appliance.qcow2 --name os-images/appliance:3",
            "shoal image add windows.raw.zst --name os-images/windows-server:2025 --json",
        ],
    ),
    ("backup", &["shoal backup /srv/backups/shoal-2026-11-23"]),
    ("backup now", &["shoal backup now"]),
    ("backup list", &["shoal backup list"]),
    ("backup verify", &["shoal backup verify", "shoal backup verify shoal-3f9a1c2b-000012-20261124T033000Z"]),
    ("backup status", &["shoal backup status"]),
    (
        "restore",
        &[
            "shoal restore /srv/backups/shoal-2026-11-23 --verify-only",
            "shoal restore /srv/backups",
            "shoal restore oci://registry.example:5000/shoal",
        ],
    ),
    ("recipe validate", &["shoal recipe validate recipe.json"]),
    ("config show", &["shoal config show --config /etc/shoal/shoal.toml", "shoal config show --online"]),
    ("config check", &["shoal config check --config /etc/shoal/shoal.toml"]),
    ("config reference", &["shoal config reference"]),
    ("openapi", &["shoal openapi > openapi.json"]),
    ("iso build", &["shoal iso build files -o image.iso"]),
    ("iso ls", &["shoal iso ls image.iso /EFI"]),
    ("iso cat", &["shoal iso cat image.iso /EFI/BOOT/GRUB.CFG"]),
    ("iso extract", &["shoal iso extract image.iso -o files"]),
    ("iso info", &["shoal iso info image.iso"]),
    ("iso check", &["shoal iso check image.iso"]),
    ("iso splice", &["shoal iso splice image.iso answers.cfg -o installer.iso"]),
    (
        "maintenance build",
        &["shoal maintenance build packages -o maintenance.iso", "shoal maintenance build packages --push"],
    ),
    ("maintenance push", &["shoal maintenance push maintenance.iso"]),
    ("maintenance fetch", &["shoal maintenance fetch packages --firmware"]),
    ("maintenance inspect", &["shoal maintenance inspect maintenance.iso"]),
    ("completions", &["shoal completions bash > /etc/bash_completion.d/shoal"]),
    ("man", &["shoal man /usr/local/share/man/man1"]),
];

/// The examples of a command.
pub(super) fn of(path: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(known, _)| *known == path).map_or(&[], |(_, examples)| examples)
}

/// A command with the examples in its help, and in that of all commands below it. `path` is empty for the program.
pub(super) fn with_examples(command: Command, path: &str) -> Command {
    let examples = of(path);
    let command = if examples.is_empty() {
        command
    } else {
        let head = if examples.len() == 1 { "Example:" } else { "Examples:" };
        let before = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
        command.after_help(format!("{before}{head}\n  {}", examples.join("\n  ")))
    };
    command.mut_subcommands(|sub| {
        let path = format!("{path} {}", sub.get_name());
        with_examples(sub, path.trim())
    })
}

/// The words of an example up to a redirection, as a shell divides them.
#[cfg(test)]
pub(super) fn words(example: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for character in example.chars() {
        match character {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            '>' | '<' | '|' if !quoted => break,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}
