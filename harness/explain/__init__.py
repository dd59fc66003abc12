"""Why a finding failed: the fewest losses that still show it, what differs least and does not, and which
write or flush would have saved it. `explain` visits crash states, in one guest, and returns an `Explanation`.
"""
