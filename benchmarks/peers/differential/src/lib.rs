//! What both programs share: clocks, memory, and the protocol of a run.

/// Seconds of CPU time that this process has used.
pub fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes of memory that this process holds.
pub fn resident_set() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The pairs of numbers in a file, one pair in a line.
pub fn read_pairs(path: &str) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap());
            (numbers.next().unwrap(), numbers.next().unwrap())
        })
        .collect()
}
