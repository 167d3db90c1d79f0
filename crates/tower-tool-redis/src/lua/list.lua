-- Cards of a record that lives in another slot.
-- KEYS: as `cards` has them. ARGV: guess of the time, ids before, ids after, present id, its moment, open, locator, forget at, channel.
local GUESS = ARGV[1]
--TIME--
--SHARED--
--CARDS--
cards(KEYS, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], '1')
return {'won', now, certain}
