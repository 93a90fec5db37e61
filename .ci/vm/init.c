/* The first program of a medium under test: says that the kernel and its initramfs came, with the index of drivers, and
   powers off. The agent takes this place on a real medium. */
#include <glob.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>

int main(void) {
    glob_t found;
    mount("proc", "/proc", "proc", 0, "");
    int indexes = glob("/lib/modules/*/shoal.index", 0, 0, &found) ? 0 : (int)found.gl_pathc;
    printf("\nMEDIUM-BOOTED indexes=%d\n", indexes);
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    return 1;
}
