"""How does this fit into what people already use?"""
