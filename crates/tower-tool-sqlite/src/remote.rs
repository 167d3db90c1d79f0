//! File systems that several machines share.

use std::path::Path;

/// Whether the directory lies on a file system that several machines may share, where one does not see another's log at once.
#[cfg(target_os = "linux")]
pub(crate) fn is_remote(directory: &Path) -> bool {
    // The width of the number, and whether it has a sign, are the system's business.
    rustix::fs::statfs(directory).is_ok_and(|found| is_shared(i128::from(found.f_type) & 0xffff_ffff))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_remote(_directory: &Path) -> bool {
    false
}

/// By the numbers of `statfs(2)` and of `linux/magic.h`.
#[cfg(target_os = "linux")]
fn is_shared(kind: i128) -> bool {
    const SHARED: [i128; 18] = [
        0x6969,      // NFS
        0x517b,      // SMB
        0xfe53_4d42, // SMB2
        0xff53_4d42, // CIFS
        0x564c,      // NCP
        0x5346_414f, // AFS
        0x6b41_4653, // kAFS
        0x7375_7245, // Coda
        0x00c3_6400, // Ceph
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
        0x1983_0326, // BeeGFS
        0x0116_1970, // GFS2
        0x7461_636f, // OCFS2
        0x0102_1997, // 9P: WSL, QEMU
        0x786f_4256, // VirtualBox
        0xbacb_acbc, // VMware
        // sshfs, s3fs, GlusterFS, virtiofs, and also some that are local: which one it is does not say.
        0x6573_5546,
    ];
    SHARED.contains(&kind)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_several_machines_share_is_told_from_what_is_local() {
        for shared in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997] {
            assert!(is_shared(shared), "{shared:x}");
        }
        // ext4, XFS, btrfs, tmpfs, overlayfs, ZFS, F2FS, APFS under Linux
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0x4253_5041]
        {
            assert!(!is_shared(local), "{local:x}");
        }
        // Where the number has a sign and 32 bits.
        assert!(is_shared(i128::from(0xff53_4d42_u32.cast_signed()) & 0xffff_ffff));
        assert!(!is_remote(&std::env::temp_dir()));
    }
}
