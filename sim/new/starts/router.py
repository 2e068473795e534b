"""A tenant's requests go to one replica, unless that replica is much busier than another."""


class TenantHome:
    """Chooses a replica for each request, in order of arrival."""

    def __init__(self, *, most_ahead=8):
        self.most_ahead = most_ahead
        self.homes = {}

    def choose(self, spec, replicas):
        loads = [replica.num_unfinished for replica in replicas]
        home = self.homes.setdefault(spec.tenant, len(self.homes) % len(loads))
        is_busy = loads[home] > min(loads) + self.most_ahead
        return loads.index(min(loads)) if is_busy else home
