//! Texts put together in a fixed room: there is no heap.

/// Is there a slash? Written as a loop, because the search in `core` is compiled separately and can
/// panic.
pub(crate) fn has_slash(bytes: &[u8]) -> bool {
    let is_slash = |byte: &u8| *byte == b'/';
    bytes.iter().any(is_slash)
}

/// Joins the pieces and adds a zero byte; `None` if the result does not fit.
pub(crate) fn join<'a, const N: usize>(
    room: &'a mut [u8; N],
    pieces: [&[u8]; 3],
) -> Option<&'a [u8]> {
    let mut end = 0_usize;
    for piece in &pieces {
        let next = end.checked_add(piece.len())?;
        // `copy_from_slice` could panic as far as the compiler knows, so this copies byte by byte.
        room.get_mut(end..next)?.iter_mut().zip(*piece).for_each(|(to, from)| *to = *from);
        end = next;
    }
    *room.get_mut(end)? = 0;
    room.get(..=end)
}

/// The decimal digits of a number, at the end of `to`.
pub(crate) fn decimal(number: u64, to: &mut [u8; 20]) -> &[u8] {
    let (mut left, mut used) = (number, 0_usize);
    for digit in to.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        (left, used) = (left / 10, used + 1);
        if left == 0 {
            break;
        }
    }
    to.get(20_usize.wrapping_sub(used)..).unwrap_or_default()
}
