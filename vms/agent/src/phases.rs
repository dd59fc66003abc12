//! Tells the disk which of the guest's reads are for files' contents.
//!
//! The kernel answers a read of the disk's serial number in sysfs by asking the disk (VIRTIO_BLK_T_GET_ID), in
//! order with its reads. The disk takes each such request for the beginning or the end of the walk's data phase.

use std::fs::File;

use rustix::io::pread;

/// A serial number and its end of line fit in: VIRTIO_BLK_ID_BYTES is 20.
const SERIAL_BYTES: usize = 64;

/// The marks of one disk. By default there is none, and nothing is told.
#[derive(Default)]
pub struct Phases {
    device: String,
    serial: Option<File>,
}

impl Phases {
    /// From now on those of the disk at a path such as `/dev/vda`, which stays as long as the guest.
    pub fn follow(&mut self, device: &str) {
        if self.serial.is_none() || self.device != device {
            let name = device.strip_prefix("/dev/");
            self.serial =
                name.and_then(|name| File::open(format!("/sys/block/{name}/serial")).ok());
            device.clone_into(&mut self.device);
        }
    }

    /// The other phase begins. A disk without a serial number does not learn of it: to that disk, all that is read
    /// is metadata, which is always right.
    pub fn next(&self) {
        if let Some(serial) = &self.serial {
            // From the beginning, so that sysfs asks anew.
            let _ = pread(serial, &mut [0; SERIAL_BYTES], 0);
        }
    }
}
