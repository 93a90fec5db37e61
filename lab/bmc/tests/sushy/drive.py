"""One boot from virtual media through sushy, the Redfish client of OpenStack Ironic.

    drive.py BASE_URL USER PASSWORD IMAGE_URL

Discovers the host, inserts the image into the first slot that accepts it, sets a boot override for the next boot, powers on,
waits until the host is on, powers off and ejects. Prints one line for each step; the exit code is 1 when a step fails.
"""

import sys
import time

import sushy
from sushy import auth, exceptions

PATIENCE = 60


def host_of(root):
    """Returns the system that can be powered on; other systems of the BMC cannot be, or return errors."""
    for path in root.get_system_collection().members_identities:
        try:
            system = root.get_system(path)
            if system.get_allowed_reset_system_values():
                return system
        except exceptions.SushyError as error:
            print("passed over", path, type(error).__name__)
    raise SystemExit("no system can be powered on")


def slots_of(system):
    for parent in [system, *system.managers]:
        try:
            return parent.virtual_media.get_members()
        except exceptions.MissingAttributeError:
            continue
    raise SystemExit("no virtual media")


def insert(slots, image):
    for slot in slots:
        types = {kind.value for kind in slot.media_types}
        if not types & {"CD", "DVD"}:
            continue
        try:
            slot.insert_media(image)
        except exceptions.SushyError as error:
            print("slot", slot.identity, "refused:", type(error).__name__)
            continue
        until("inserted", lambda: slot.inserted, slot)
        return slot
    raise SystemExit("no slot took the image")


def until(what, holds, *resources):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"never {what}")
        time.sleep(0.1)
        for resource in resources:
            resource.invalidate()
            resource.refresh(force=True)
    print(what)


def main(url, user, password, image):
    root = sushy.Sushy(url, auth=auth.SessionOrBasicAuth(user, password), verify=False)
    system = host_of(root)
    print("host", system.identity, system.manufacturer, system.serial_number or system.sku)
    slot = insert(slots_of(system), image)
    allowed = system.get_allowed_system_boot_source_values()
    target = sushy.BOOT_SOURCE_TARGET_USB_CD
    if target not in allowed or system.manufacturer.lower() != "supermicro":
        target = sushy.BOOT_SOURCE_TARGET_CD
    system.set_system_boot_options(
        target=target, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE, mode=sushy.BOOT_SOURCE_MODE_UEFI
    )
    print("boot override", target)
    system.reset_system(sushy.RESET_ON)
    until("on", lambda: system.power_state == sushy.SYSTEM_POWER_STATE_ON, system)
    system.reset_system(sushy.RESET_FORCE_OFF)
    until("off", lambda: system.power_state == sushy.SYSTEM_POWER_STATE_OFF, system)
    slot.refresh(force=True)
    slot.eject_media()
    until("ejected", lambda: not slot.inserted, slot)


if __name__ == "__main__":
    main(*sys.argv[1:])
