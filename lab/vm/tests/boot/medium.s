# The boot image of the test medium: an "installer" of 2048 bytes for BIOS firmware, and the sector that it installs.
# Loaded at 0x7c00, 16 bit. payload.rs has the bytes: as --32 medium.s -o m.o && objcopy -O binary -j .text m.o m.bin
    .code16
    .org 0
start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7c00, %sp
    sti
    cld
    movw $0x7c00 + (hello - start), %si
    call print
    # Write one sector (ours at 512) to LBA 0 of the first disk.
    movw $0x7c00 + (packet - start), %si
    movw $0x4300, %ax
    movb $0x80, %dl
    int $0x13
    movw $0x7c00 + (written - start), %si
    jnc 1f
    movw $0x7c00 + (failed - start), %si
1:  call print
    # ACPI: S5 on q35 and i440fx.
    movw $0x604, %dx
    movw $0x2000, %ax
    outw %ax, %dx
2:  hlt
    jmp 2b
print:
    lodsb
    testb %al, %al
    jz 4f
    movb %al, %ah
    movw $0x3fd, %dx
3:  inb %dx, %al
    testb $0x20, %al
    jz 3b
    movw $0x3f8, %dx
    movb %ah, %al
    outb %al, %dx
    jmp print
4:  ret
packet:
    .byte 16, 0
    .word 1
    .word 0x7e00
    .word 0
    .quad 0
hello: .asciz "test medium: booted from CD\r\n"
written: .asciz "test medium: disk written, powering off\r\n"
failed: .asciz "test medium: the disk was not written\r\n"
    .org 512
disk:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %ss
    movw $0x7c00, %sp
    cld
    movw $0x7c00 + (prompt - disk), %si
    call dprint
5:  movw $0x3fd, %dx
6:  inb %dx, %al
    testb $1, %al
    jz 6b
    movw $0x3f8, %dx
    inb %dx, %al
    cmpb $'r', %al
    je 8f
    cmpb $'q', %al
    jne 5b
    movw $0x604, %dx
    movw $0x2000, %ax
    outw %ax, %dx
7:  hlt
    jmp 7b
8:  movw $0xcf9, %dx            # r: reset
    movb $6, %al
    outb %al, %dx
    jmp 7b
dprint:
    lodsb
    testb %al, %al
    jz 4f
    movb %al, %ah
    movw $0x3fd, %dx
3:  inb %dx, %al
    testb $0x20, %al
    jz 3b
    movw $0x3f8, %dx
    movb %ah, %al
    outb %al, %dx
    jmp dprint
4:  ret
prompt: .asciz "test disk: booted\r\ntest login: "
    .org 1022
    .byte 0x55, 0xaa
    .org 2048
