"""One update of the BIOS through sushy, the Redfish client of OpenStack Ironic.

    update.py BASE_URL USER PASSWORD IMAGE_URL VERSION

Reads the inventory of the firmware, has the BMC read the image, follows the task of the update to its end, starts the host, and reads the
inventory until a component has the version. Prints one line for each step; the exit code is 1 when a step fails.
"""

import sys
import time

import sushy
from sushy import auth

from drive import host_of, until


def followed(monitor):
    """Waits for the end of a task."""
    end = time.monotonic() + 60
    while monitor.is_processing:
        if time.monotonic() > end:
            raise SystemExit(f"never done: {monitor.task_monitor_uri}")
        time.sleep(0.1)
        monitor.refresh()
    print("done", monitor.task_monitor_uri)


def main(url, user, password, image, version):
    root = sushy.Sushy(url, auth=auth.SessionOrBasicAuth(user, password), verify=False)
    service = root.get_update_service()

    def versions():
        inventory = service.firmware_inventory
        inventory.refresh(force=True)
        return {member.identity: member.version for member in inventory.get_members()}

    before = versions()
    print("inventory", before)
    if version in before.values():
        raise SystemExit("the version is there before the update")
    followed(service.simple_update(image, transfer_protocol=sushy.UPDATE_PROTOCOL_HTTP))
    system = host_of(root)
    system.reset_system(sushy.RESET_ON)
    until("on", lambda: system.power_state == sushy.SYSTEM_POWER_STATE_ON, system)
    until("updated", lambda: version in versions().values())


if __name__ == "__main__":
    main(*sys.argv[1:])
