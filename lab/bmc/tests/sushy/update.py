"""One update of the BIOS through sushy, the Redfish client of OpenStack Ironic.

    update.py BASE_URL USER PASSWORD IMAGE_URL VERSION

Reads the inventory of the firmware, has the BMC read the image, follows the task of the update to its end, starts the host, and reads the
inventory until a component has the version. Prints one line for each step; the exit code is 1 when a step fails.
"""

import sys
import time

import sushy
from sushy import auth, exceptions

from drive import host_of, until


def followed(monitor):
    """Follows the task of an update until it runs no more: it is done, or it waits for the start of the host."""
    end = time.monotonic() + 60
    task = monitor.get_task()
    while task.task_state in (sushy.TASK_STATE_NEW, sushy.TASK_STATE_RUNNING):
        if time.monotonic() > end:
            raise SystemExit(f"never done: {monitor.task_monitor_uri} {task.task_state}")
        time.sleep(0.1)
        monitor.refresh()
        task = monitor.get_task()
    print("task", monitor.task_monitor_uri, task.task_state)


def main(url, user, password, image, version):
    root = sushy.Sushy(url, auth=auth.SessionOrBasicAuth(user, password), verify=False)
    service = root.get_update_service()

    def versions():
        # Some BMCs name a component by its version: it can be replaced between the list and the read.
        try:
            members = root.get_update_service().firmware_inventory.get_members()
            return {member.identity: member.version for member in members}
        except exceptions.ResourceNotFoundError:
            return {}

    before = versions()
    print("inventory", before)
    if version in before.values():
        raise SystemExit("the version is there before the update")
    followed(service.simple_update(image, transfer_protocol=sushy.UPDATE_PROTOCOL_HTTP))
    system = host_of(root)
    system.reset_system(sushy.RESET_ON)
    until("on", lambda: system.power_state == sushy.SYSTEM_POWER_STATE_ON, system)
    until("updated", lambda: any(version in shown for shown in versions().values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
