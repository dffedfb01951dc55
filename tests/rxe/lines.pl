# SPDX-License-Identifier: BSD-3-Clause
#
# Output of several at once, in whole lines.

use strict;
use warnings;

# Cuts from the front of the string behind $buffer its whole lines, or all of
# it if it is the end or the line is long, and returns them with $label in front
# of each.
sub cut_lines {
	my ($buffer, $label, $is_end) = @_;

	my $end = rindex($$buffer, "\n") + 1;
	$end = length $$buffer if $is_end || $end == 0 && length $$buffer > 65536;
	return '' if !$end;
	my $lines = substr $$buffer, 0, $end, '';
	$lines .= "\n" if $lines !~ /\n\z/;
	$lines =~ s/^/$label/gm;
	return $lines;
}

1;
