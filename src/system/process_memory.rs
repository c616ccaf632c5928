//! The memory of other processes.

use std::io;

/// Copies the memory of a process from `address` on. Fails unless `to` is filled completely. The process keeps running
/// during the copy.
pub fn read(pid: u32, address: u64, to: &mut [u8]) -> io::Result<()> {
    let start = usize::try_from(address).map_err(io::Error::other)?;
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: `local` is the memory of `to`, which is borrowed mutably. The kernel checks `remote`, which is not memory of this
    // process.
    let copied = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == to.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_whole_or_not_at_all() {
        let there = *b"some bytes";
        let mut copy = [0; 10];
        read(std::process::id(), there.as_ptr() as u64, &mut copy).unwrap();
        assert_eq!(copy, there);
        assert!(read(std::process::id(), 8, &mut copy).is_err());
        assert!(read(std::process::id(), u64::MAX - 4, &mut copy).is_err());
    }
}
