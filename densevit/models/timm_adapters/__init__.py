"""timm_adapters"""
