//go:build linux

package durable

import "testing"

func TestFileSystemsHaveNamesAndManners(t *testing.T) {
	for magic, want := range map[uint32]struct {
		name    string
		network bool
	}{
		0xef53: {"ext4", false}, 0x01021994: {"tmpfs", false}, 0x6969: {"nfs", true}, 0x65735546: {"fuse", true}, 0xff534d42: {"cifs", true},
		0xabcdef: {"0xabcdef", false},
	} {
		if name, network := kindOf(magic); name != want.name || network != want.network {
			t.Errorf("%#x: %s, %t", magic, name, network)
		}
	}
}

func TestDeviceOfReadsMountinfo(t *testing.T) {
	const mounts = `136 35 98:1 / /other rw - ext4 /dev/b rw
36 35 0:48 /mnt1 /mnt2 rw,noatime master:1 - btrfs /dev/root rw
37 35 x:y / /strange rw - ext4 /dev/c rw
38
`
	for _, c := range []struct {
		id           uint64
		major, minor uint32
		ok           bool
	}{{36, 0, 48, true}, {136, 98, 1, true}, {37, 0, 0, false}, {38, 0, 0, false}, {39, 0, 0, false}} {
		if a, b, ok := deviceOf(mounts, c.id); a != c.major || b != c.minor || ok != c.ok {
			t.Errorf("%d: %d:%d, %t", c.id, a, b, ok)
		}
	}
}
